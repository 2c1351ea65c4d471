"""`Outcome`: what a simulation found, and `Watch`: who wants to see every task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sennit.trace.span import Span


@dataclass(slots=True)
class Outcome:
    """What a simulation found.

    Attributes:
        makespan: seconds from the first task's start to the last one's end.
        busy: seconds that each worker computed.
        tasks: how many tasks ran.
        subnets: how many subnets.
        peak_bytes: most that each worker held in activations; empty if nobody counted.
    """

    makespan: float
    busy: list[float]
    tasks: int
    subnets: int
    peak_bytes: list[float] = field(default_factory=list[float])

    @property
    def bubble(self) -> float:
        """1 - device time of all tasks / (workers x makespan); 0 if nothing takes time."""
        return 1.0 - sum(self.busy) / (len(self.busy) * self.makespan) if self.makespan else 0.0


Watch = Callable[[Span], None]
"""Told every task, in order of ends, with what it waited for."""
