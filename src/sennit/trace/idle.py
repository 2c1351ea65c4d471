"""Why workers were idle: every moment in which a worker ran nothing, by cause.

    worker 0   ▓▓▓▓▓▓▓▓                    ▓▓▓▓▓▓▓▓▓
    worker 1   ramp-up ▓▓▓▓ version |link|late ▓▓▓▓▓  ramp-down
                           a       left ready  start

An idle interval [a, start) before a task is cut where the span of that task says: until `left` it waited for what the
span's cause names, until `ready` that was on its way, and the rest the worker was late (polling, messages, an order
that preferred to wait). Before a worker's first task it is ramp-up, after its last one ramp-down.

Times are counted in whole ticks, so the parts add up to the bubble exactly, not nearly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from sennit.trace.events import Trace
from sennit.trace.span import Span

TICK = 1e-9
"""Of the trace's unit of time: a nanosecond, where that is a second."""

LINK, LATE, RAMP_UP, RAMP_DOWN = "link", "late", "ramp-up", "ramp-down"
OTHERS = (LINK, LATE, RAMP_UP, RAMP_DOWN)
PARTS: tuple[str, ...] = (
    "version", "value", "gradient", "weight", "buffer", "admitted", "cut", "order", "start", *OTHERS
)  # fmt: skip
"""Everything that idle time can be: a cause that was waited for, or one of the four others."""

LONG = 0.01
"""Intervals of at least this part of the makespan are named one by one."""


class Idle(NamedTuple):
    """One idle interval of one worker.

    Attributes:
        start, end: ticks from the first task's start.
        parts: `(what, ticks)`, in order of time; what is one of `PARTS`. Their sum is the interval.
        before: the task that ended it; None if none came.
        begins: its start in the trace's time.
    """

    worker: int
    start: int
    end: int
    parts: tuple[tuple[str, int], ...]
    before: Span | None
    begins: float


@dataclass(frozen=True)
class Idleness:
    """All idle time of a trace.

    Attributes:
        intervals: by worker and time.
        makespan: ticks from the first task's start to the last one's end.
        begins: when that start was, in the trace's time.
    """

    intervals: list[Idle]
    makespan: int
    workers: int
    begins: float

    @staticmethod
    def of(trace: Trace) -> Idleness:
        """Find the idle intervals. A trace without tasks has none."""
        spans = trace.spans
        if not spans:
            return Idleness([], 0, trace.workers, 0.0)
        begins = min(span.start for span in spans)
        makespan = _ticks(max(span.end for span in spans), begins)
        by_worker: list[list[Span]] = [[] for _ in range(trace.workers)]
        for span in spans:
            by_worker[span.worker].append(span)
        found: list[Idle] = []
        for worker, held in enumerate(by_worker):
            found += _intervals(worker, sorted(held, key=lambda span: span.start), begins, makespan)
        return Idleness(found, makespan, trace.workers, begins)

    @cached_property
    def by_worker(self) -> list[dict[str, int]]:
        """Per worker, ticks of each part that occurs anywhere."""
        table = [dict.fromkeys(PARTS, 0) for _ in range(self.workers)]
        for idle in self.intervals:
            for what, ticks in idle.parts:
                table[idle.worker][what] += ticks
        there = [what for what in PARTS if any(row[what] for row in table)]
        return [{what: row[what] for what in there} for row in table]

    @property
    def total(self) -> int:
        """Ticks that all workers were idle, together."""
        return sum(idle.end - idle.start for idle in self.intervals)

    @property
    def bubble(self) -> float:
        """Idle part of workers x makespan."""
        return self.total / (self.workers * self.makespan) if self.makespan else 0.0

    def shares(self) -> dict[str, float]:
        """Of workers x makespan, the part that each cause takes; the sum is the bubble."""
        whole = self.workers * self.makespan
        return {what: sum(row[what] for row in self.by_worker) / whole for what in (self.by_worker or [{}])[0]}

    def long(self, share: float = LONG) -> list[Idle]:
        """Intervals of at least `share` of the makespan, the longest first."""
        found = [idle for idle in self.intervals if idle.end - idle.start >= share * self.makespan]
        return sorted(found, key=lambda idle: (idle.start - idle.end, idle.worker, idle.start))


def _intervals(worker: int, spans: Iterable[Span], begins: float, makespan: int) -> Iterable[Idle]:
    """Of one worker, whose spans come by start."""
    at, first = 0, True
    for span in spans:
        start, end = _ticks(span.start, begins), _ticks(span.end, begins)
        if start > at:
            left = min(max(_ticks(span.left, begins), at), start)
            ready = min(max(_ticks(span.ready, begins), left), start)
            parts = [(str(span.cause), left - at), (LINK, ready - left), (LATE, start - ready)]
            if first:
                parts = [(RAMP_UP, start - at)]
            yield Idle(worker, at, start, tuple(part for part in parts if part[1]), span, begins + at * TICK)
        at, first = max(at, end), False
    if makespan > at:
        parts = ((RAMP_UP if first else RAMP_DOWN, makespan - at),)
        yield Idle(worker, at, makespan, parts, None, begins + at * TICK)


def _ticks(time: float, begins: float) -> int:
    return round((time - begins) / TICK)
