"""`Memory`: activations in flight under a limit per worker, so that the oldest micro-batch can always go on.

A forward takes its bytes when it starts and keeps them until its backward (its W, if split) is done. It must fit; one
that does not waits, and its worker does something else. That alone could lock: younger micro-batches fill the memory
that the oldest one needs to come to its backward. So young ones leave room for one whole micro-batch:

    |<------------------- limit ------------------->|
    | young ones, together        |  room: one       |      a young forward takes from the left part alone,
    | at most limit - room        |  micro-batch     |      the oldest micro-batch from anywhere

The room is the most that any micro-batch so far needs on the worker. Once the oldest has ended, the next one is the
oldest; all that had been granted to micro-batches behind it left room for it, so its forwards fit too. (The banker's
rule of Dijkstra 1965 for one customer at a time.) A fixed list does nothing else meanwhile: there the limit alone
counts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from heapq import heappop, heappush

from sennit.errors import UserError
from sennit.schedule.order import Task
from sennit.simulate.load import Piece

Pair = tuple[int, int]
"""Subnet and micro-batch."""


class Memory:
    """What workers hold.

    Args:
        limits: bytes of each worker.
        micro_batches: M.
    """

    def __init__(self, limits: Sequence[float], micro_batches: int) -> None:
        self.limits, self.m = limits, micro_batches
        self.held = [0.0] * len(limits)
        self.peak = [0.0] * len(limits)
        self.room = [0.0] * len(limits)
        self.of: dict[tuple[int, int, int], float] = {}
        """Bytes by subnet, micro-batch and worker."""
        self.left: OrderedDict[Pair, int] = OrderedDict()
        """Runs that still have to end their backward, of micro-batches in flight, oldest first."""
        self.waiting: list[list[tuple[int, int, int, float, Task]]] = [[] for _ in limits]

    def admit(self, seq_id: int, pieces: Sequence[Piece]) -> None:
        """A subnet comes.

        Raises:
            UserError: one micro-batch of it does not fit.
        """
        for j in range(self.m):
            self.left[seq_id, j] = len(pieces)
            need: dict[int, float] = {}
            for piece in pieces:
                worker = piece.where(j)
                need[worker] = need.get(worker, 0.0) + piece.held_bytes
            for worker, size in need.items():
                if size > self.limits[worker]:
                    raise UserError(
                        f"worker {worker} has {self.limits[worker]:g} bytes for activations, one micro-batch of subnet "
                        f"{seq_id} needs {size:g}; give it more memory, or use more micro-batches or workers"
                    )
                self.room[worker] = max(self.room[worker], size)

    def ask(self, task: Task, worker: int, size: float, *, fixed: bool) -> bool:
        """Take memory for a forward. If False, `freed` will give the task back once there is some."""
        fits = self.held[worker] + size <= self.limits[worker] if fixed else self.fits(task, worker, size)
        if fits:
            self.take(task, worker, size)
        else:
            heappush(self.waiting[worker], (task.seq_id, task.micro_batch, task.run, size, task))
        return fits

    def freed(self, task: Task, worker: int, size: float) -> list[Task]:
        """The backward of a run has ended.

        Returns:
            Forwards that may ask again.
        """
        pair = task.seq_id, task.micro_batch
        self.held[worker] -= size
        self.of[(*pair, worker)] -= size
        self.left[pair] -= 1
        if self.left[pair]:
            return self.grant(worker)
        oldest = next(iter(self.left)) == pair
        del self.left[pair]
        for k in range(len(self.limits)):
            self.of.pop((*pair, k), None)
        if not oldest:
            return self.grant(worker)
        return [granted for k in range(len(self.limits)) for granted in self.grant(k)]

    def grant(self, worker: int) -> list[Task]:
        """Waiting forwards for which there is memory now, in their order up to the first for which there is none. Which
        of them runs is their order's business, and those that do not fit then wait again."""
        granted: list[Task] = []
        waiting = self.waiting[worker]
        while waiting and self.fits(waiting[0][4], worker, waiting[0][3]):
            granted.append(heappop(waiting)[4])
        return granted

    def fits(self, task: Task, worker: int, size: float) -> bool:
        if self.is_oldest(task):
            return True
        young = self.held[worker] - self.of.get((*next(iter(self.left)), worker), 0.0)
        return young + size + self.room[worker] <= self.limits[worker]

    def is_oldest(self, task: Task) -> bool:
        return next(iter(self.left)) == (task.seq_id, task.micro_batch)

    def take(self, task: Task, worker: int, size: float) -> None:
        key = task.seq_id, task.micro_batch, worker
        self.of[key] = self.of.get(key, 0.0) + size
        self.held[worker] += size
        self.peak[worker] = max(self.peak[worker], self.held[worker])
