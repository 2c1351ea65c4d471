"""CSP order: of the tasks that are ready, backward before forward, the earliest subnet first.

Earliest first keeps the oldest subnets moving, on whose writes the others wait; a later subnet never takes a
slot that an earlier one could use (NASPipe Algorithm 1, with readiness decided by versions, see `Sync`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from sennit.schedule.ready import TaskId


class CspOrder:
    """Picks the next task of one worker."""

    def __init__(self) -> None:
        self.backward: list[tuple[int, int, int, TaskId]] = []
        self.forward: list[tuple[int, int, int, TaskId]] = []

    def add(self, tasks: Iterable[TaskId]) -> None:
        for task in tasks:
            if task.kind == "B":
                heapq.heappush(self.backward, (task.seq_id, task.micro_batch, -task.run, task))
            else:
                heapq.heappush(self.forward, (task.seq_id, task.micro_batch, task.run, task))

    def pop(self) -> TaskId | None:
        """The next task, or None if nothing is ready."""
        heap = self.backward or self.forward
        return heapq.heappop(heap)[3] if heap else None
