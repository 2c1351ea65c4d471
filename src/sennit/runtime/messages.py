"""`Messages`: what it cost a run that tasks have to reach workers: time on the way, and time until a worker takes them.

    maker ──end   left ── on its way ── ready ── late ── start

Both are read off the spans. What they bring about further on (a worker that waits because another one got its input
late) is not in them; a simulation with them tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sennit.simulate.cluster import Cluster, Link
from sennit.trace.events import Trace, name_of
from sennit.trace.idle import LATE, LINK, Idleness
from sennit.trace.span import Span

FROM_OUTSIDE = ("start", "admitted", "cut")
"""Causes that no task of the run has made: what passes after them is not a message's doing."""

TRAVELS = ("value", "gradient")


@dataclass(frozen=True)
class Messages:
    """Of one run.

    Attributes:
        latency: mean seconds that a value or gradient was on its way to a worker that had nothing to do.
        start: mean seconds between the moment when a task could start and its start.
        on_the_way, late: of workers x time, what workers idled away in that.
        bubble: of the run, between its first and its last task.
    """

    latency: float
    start: float
    on_the_way: float
    late: float
    bubble: float

    @staticmethod
    def of(spans: Sequence[Span], workers: int) -> Messages:
        """What the spans of a run tell."""
        shares = (idle := Idleness.of(Trace({"workers": workers}, list(spans)))).shares()
        on_the_way, starts = _delays(spans)
        return Messages(
            _mean(on_the_way), _mean(starts), shares.get(LINK, 0.0), shares.get(LATE, 0.0), idle.bubble
        )  # fmt: skip

    @property
    def cluster(self) -> Cluster:
        """Workers among which messages take as long."""
        return Cluster(links=(Link(latency=self.latency),), host_s=self.start)

    def dominate(self, without: float) -> bool:
        """Whether they are most of the bubble.

        Args:
            without: the bubble simulated with what tasks took, and messages that take no time.
        """
        beyond = self.bubble - without
        return beyond > self.bubble / 2 and self.on_the_way + self.late > beyond / 4

    def words(self) -> str:
        """Of a run that they dominate, and what helps there."""
        return (
            f"most of the bubble ({self.bubble:.2f} between the first and the last task) is not the order's: messages "
            f"were on their way ({self.on_the_way:.2f}) and lay until a worker took them ({self.late:.2f}), and others "
            "waited behind these and behind tasks that took longer than on average; fewer workers or chunks, a larger "
            "batch_size and balanced cuts make that less of the whole"
        )


def _delays(spans: Sequence[Span]) -> tuple[list[float], list[float]]:
    """Seconds on the way, and until the start."""
    makers: Mapping[str, Span] = {name_of(span): span for span in spans if span.kind != "U"}
    on_the_way: list[float] = []
    starts: list[float] = []
    free: dict[int, float] = {}
    for span in sorted(spans, key=lambda span: (span.worker, span.start)):
        since = free.get(span.worker, 0.0)
        free[span.worker] = max(since, span.end)
        if span.kind == "U" or span.cause in FROM_OUTSIDE:
            continue
        starts.append(max(0.0, span.start - max(since, span.ready)))
        maker = makers.get(span.by)
        # a worker that is busy notices late what has come, which costs nothing
        if maker is not None and maker.worker != span.worker and span.cause in TRAVELS and since <= span.left:
            on_the_way.append(max(0.0, span.ready - span.left))
    return on_the_way, starts


def _mean(seconds: Sequence[float]) -> float:
    return sum(seconds) / len(seconds) if seconds else 0.0
