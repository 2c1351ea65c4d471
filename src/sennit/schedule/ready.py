"""`Ready`: which tasks have everything they wait for. Incremental counters, no scans.

A task waits for events (a value has arrived, a group has reached a version, a buffer is free). Each event is
told once; tasks added later look it up first.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from sennit.schedule.order import Task


class Ready:
    """Counts down what each task still waits for."""

    def __init__(self) -> None:
        self.missing: dict[Task, int] = {}
        self.waiting: dict[Hashable, list[Task]] = {}
        self.ready: list[Task] = []

    def add(self, task: Task, events: Iterable[Hashable]) -> None:
        """Add a task that waits for `events`, none of which has happened yet."""
        count = 0
        for event in events:
            self.waiting.setdefault(event, []).append(task)
            count += 1
        if count:
            self.missing[task] = count
        else:
            self.ready.append(task)

    def happened(self, event: Hashable) -> None:
        """`event` has happened; tasks that waited for nothing else become ready."""
        for task in self.waiting.pop(event, ()):
            self.missing[task] -= 1
            if not self.missing[task]:
                del self.missing[task]
                self.ready.append(task)

    def awaited(self) -> Iterable[Hashable]:
        """Events that some task waits for."""
        return self.waiting.keys()

    def take(self) -> list[Task]:
        """Tasks that became ready since the last call."""
        ready, self.ready = self.ready, []
        return ready
