"""`Reasons`: idle intervals in words: what a worker waited for, and who made it wait."""

from __future__ import annotations

from sennit.trace.events import Trace, name_of
from sennit.trace.idle import LATE, LINK, OTHERS, PARTS, RAMP_DOWN, RAMP_UP, Idle, Idleness
from sennit.trace.span import Span

WITHIN = ("value", "gradient", "weight")
"""Causes that a subnet's own tasks make; the others come from other subnets, or from outside."""


class Reasons:
    """Words for what idle intervals were about."""

    def __init__(self, trace: Trace) -> None:
        self.makers = {name_of(span): span for span in trace.spans if span.kind != "U"}

    def words(self, idle: Idle) -> str:
        """What an interval was spent on and who made the worker wait."""
        if idle.before is None:
            return "no task came any more" if idle.parts[0][0] == RAMP_DOWN else "it had no task at all"
        said = f"waited for {self.cause(idle.before)}"
        last = self.last(idle.before, idle.begins)
        if last is not idle.before:
            said += f"; in the end for {self.cause(last)}"
        if idle.parts == ((RAMP_UP, idle.end - idle.start),):
            return f"before its first task: {said}"
        if idle.parts[0][0] == LATE:
            return f"nothing was missing: {self.cause(idle.before)} was there"
        return said if idle.parts[0][0] != LINK else f"on its way: {self.cause(idle.before)}"

    def last(self, span: Span, begins: float) -> Span:
        """Follows who waited for whom within a subnet.

            worker 0   ▓▓▓ idle ........................ ▓▓▓ span
            worker 1   ▓▓▓▓▓▓▓▓▓ idle ......... ▓▓▓ maker
            worker 2   ▓▓▓ idle ..... ▓▓▓ its maker                  waited for a version: that is what all waited for

        Args:
            begins: when the idle interval before `span` began, in the trace's time.

        Returns:
            The task whose own wait explains that interval: another subnet made it wait, or its maker was at work.
        """
        while span.cause in WITHIN and (maker := self.makers.get(span.by)) is not None:
            if maker.left <= begins:  # nothing was missing there: it was at work, or on its way
                break
            if 2 * (maker.start - max(maker.ready, begins)) > maker.start - begins:  # its worker ran others first
                break
            if maker.start >= span.start:  # no cause comes later than what it causes: a file that was not written by us
                break
            span = maker
        return span

    def in_the_end(self, idleness: Idleness) -> list[dict[str, int]]:
        """As `Idleness.by_worker`, with time that was waited put down to what all waited for in the end."""
        table = [dict.fromkeys(PARTS, 0) for _ in range(idleness.workers)]
        for idle in idleness.intervals:
            for what, ticks in idle.parts:
                if idle.before is not None and what not in OTHERS:
                    what = self.last(idle.before, idle.begins).cause
                table[idle.worker][what] += ticks
        return table

    def cause(self, span: Span) -> str:
        """What came last for a task, and by whom."""
        maker = self.makers.get(span.by)
        by = f"{span.by} on worker {maker.worker}" if maker is not None else span.by
        match span.cause:
            case "start":
                return "the run to begin"
            case "value":
                return f"the output of {by or 'an earlier run'}"
            case "gradient":
                return f"the {span.of or 'gradient'} from {by or 'a later run'}"
            case "weight":
                return f"its input gradient, {by}"
            case "version":
                return f"the weights of {span.of}" + (f", stepped after {by}" if by else "")
            case "buffer":
                return f"its turn on the buffers {span.of.removesuffix('#buffers')}" + (f", after {by}" if by else "")
            case "admitted":
                if span.of == "draw":
                    return "its subnet to be drawn"
                return f"its subnet to be let in, after {' and '.join(filter(None, (span.of, by))) or 'others'} ended"
            case "cut":
                return "the cut before its subnet (a checkpoint or an evaluation)"
            case "order":
                return "its turn in the order of its worker"
