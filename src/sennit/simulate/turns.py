"""`Turns`: forwards that write buffers (batch norm) do so in the order of (subnet, micro-batch, run), as for workers.

buffers in runs 0 and 2, M = 2     0F0.0 ▶ 2F0.0 ▶ 0F0.1 ▶ 2F0.1 ▶ 0F1.0 ▶ 2F1.0 ...
"""

from __future__ import annotations

from collections.abc import Sequence

from sennit.schedule.order import Task
from sennit.simulate.load import Piece


class Turns:
    """Of all buffers.

    Args:
        micro_batches: M.
    """

    def __init__(self, micro_batches: int) -> None:
        self.m = micro_batches
        self.last: dict[str, Task] = {}
        """Of each group, the last forward of the subnets let in."""
        self.done: dict[str, Task] = {}
        """The last one that has written it."""
        self.following: dict[tuple[str, Task], Task] = {}
        """Whose turn comes after a forward's."""
        self.missing: dict[Task, int] = {}
        """Forwards that wait for turns, and for how many."""
        self.held: set[Task] = set()
        """Those that wait for nothing else."""

    def admit(self, seq_id: int, pieces: Sequence[Piece]) -> None:
        """A subnet comes."""
        for j in range(self.m):
            for r, piece in enumerate(pieces):
                task = Task("F", seq_id, j, r)
                for group in piece.moves:
                    before = self.last.get(group)
                    if before != self.done.get(group):
                        assert before is not None
                        self.following[group, before] = task
                        self.missing[task] = self.missing.get(task, 0) + 1
                    self.last[group] = task

    def hold(self, task: Task) -> bool:
        """Whether a forward must wait for its turn, and for nothing else; `passed` will name it."""
        if task not in self.missing:
            return False
        self.held.add(task)
        return True

    def passed(self, task: Task, groups: Sequence[str]) -> list[tuple[Task, str]]:
        """A forward has written its buffers.

        Returns:
            Forwards that can run now, and the group whose turn they had to wait for.
        """
        free: list[tuple[Task, str]] = []
        for group in groups:
            self.done[group] = task
            follower = self.following.pop((group, task), None)
            if follower is None:
                continue
            self.missing[follower] -= 1
            if not self.missing[follower]:
                del self.missing[follower]
                if follower in self.held:
                    self.held.remove(follower)
                    free.append((follower, group))
        return free
