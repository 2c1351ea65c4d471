"""`PutOff`: gradients of weights (W) that a host could launch, and does not yet.

    host      F0 I0 ── W0? ──────────────── F1 has come: F1 ──
    device    ▓▓F0▓▓▓▓I0▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓F1▓▓▓▓▓▓▓▓

A device computes tasks in the order of their launches, and its host is ahead of it. Nobody waits for W0 as others wait
for F1 and I1, which may come while I0 is computed: launched at once, W0 would go before them. So it is launched when
the device has nothing left to do, or when nothing can come any more that would go before it.

If a later subnet here waits for the version that W0 makes, forwards of later subnets are nothing that would go before
it: then the order has it as soon as its own subnet and earlier ones have nothing left to come, and puts it before them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from sennit.schedule.order import Task
from sennit.schedule.ready import Ready

STEPPED = ("version", "word")
"""Events that a step or a forward of an earlier subnet brings about, not a message."""


class PutOff:
    """Of one worker.

    Args:
        ready: what its tasks wait for.
        behind: how many launched tasks the device has not ended yet.
        awaited: whether a subnet in flight waits for what (subnet, run) will write.
    """

    def __init__(self, ready: Ready, behind: Callable[[], int], awaited: Callable[[int, int], bool]) -> None:
        self.ready, self.behind, self.awaited = ready, behind, awaited
        self.tasks: list[Task] = []

    def __bool__(self) -> bool:
        return bool(self.tasks)

    def add(self, task: Task) -> None:
        self.tasks.append(task)

    def due(self) -> list[Task]:
        """Those whose time has come: all if nothing can come that goes before them; one if the device is idle, the
        earliest subnet's, as causal order would have it."""
        if not self.tasks:
            return []
        if not self.may_come():
            found, self.tasks = self.tasks, []
            return found
        if self.behind():
            return []
        first = min(self.tasks)
        self.tasks.remove(first)
        return [first]

    def urgent(self, offered: Collection[Task]) -> list[Task]:
        """Those whose version is awaited, of subnets up to which nothing can come.

        Args:
            offered: tasks that can be launched now.
        """
        awaited = [task for task in self.tasks if self.awaited(task.seq_id, task.run)]
        if not awaited:
            return []
        coming = [*self.coming(), *(task for task in offered if task.kind != "W")]
        first = min((task.seq_id for task in coming), default=None)
        found = [task for task in awaited if first is None or task.seq_id < first]
        for task in found:
            self.tasks.remove(task)
        return found

    def may_come(self) -> bool:
        """Whether a forward or a backward waits for nothing but messages."""
        return any(True for _ in self.coming())

    def coming(self) -> Iterator[Task]:
        """Forwards and backwards that wait for nothing but messages."""
        later = {task for event, tasks in self.ready.waiting.items() if _kind(event) in STEPPED for task in tasks}
        return (task for task in self.ready.missing if task.kind != "W" and task not in later)


def _kind(event: object) -> object:
    return event[0] if isinstance(event, tuple) else None  # pyright: ignore[reportUnknownVariableType]
