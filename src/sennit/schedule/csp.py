"""CSP order: of the ready tasks, gradients that others wait for first, and the earliest subnet first.

    1  I or B   lowest subnet, lowest micro-batch, deepest run     the backward that all earlier layers wait for
    2  W        of the lowest subnet, if a later subnet waits for the version it makes
    3  F        lowest subnet, lowest micro-batch, first run
    4  W        the rest

Earliest first keeps the oldest subnets moving, on whose writes the others wait (NASPipe Algorithm 1, with
readiness decided by versions, see `Sync`). Whole backwards have no step 2 and 4.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from sennit.schedule.order import Task


class CspOrder:
    """Picks the next task of one worker.

    Args:
        awaited: whether a subnet in flight waits for what (subnet, run) will write; asked of W tasks alone.
    """

    def __init__(self, awaited: Callable[[int, int], bool] = lambda seq_id, run: False) -> None:
        self.awaited = awaited
        self.backward: list[tuple[int, int, int, Task]] = []
        self.forward: list[tuple[int, int, int, Task]] = []
        self.weight: list[tuple[int, int, int, Task]] = []

    def add(self, task: Task) -> None:
        kind, y, j, r = task
        if kind == "F":
            heappush(self.forward, (y, j, r, task))
        elif kind == "W":
            heappush(self.weight, (y, j, r, task))
        else:
            heappush(self.backward, (y, j, -r, task))

    def pop(self) -> Task | None:
        if self.backward:
            return heappop(self.backward)[3]
        weight = self.weight
        if weight and (not self.forward or self.awaited(weight[0][0], weight[0][2])):
            return heappop(weight)[3]
        return heappop(self.forward)[3] if self.forward else None
