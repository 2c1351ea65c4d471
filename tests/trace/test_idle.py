"""Idle time by cause, against a drawing whose figures are written down from the drawing alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sennit.trace.events import Trace
from sennit.trace.idle import PARTS, TICK, Idleness
from sennit.trace.span import Span

# time      0         10        20        30        40     47
# worker 0  FFFFFFFFFF       FFFFFFFFFFFF          BBBBBBBB     F0 0-10, F1 17-29, B0 39-47
# worker 1                  FFFFFFFFFFFFFFFFFFFFFBBBBBB         F0 16-37, B0 37-43
# worker 2                                                      nothing
#
# worker 0: F1 lacks `blocks.0` in the version of subnet 0 until 14 (its maker is 7B9.0, which is not in the trace);
#           that was on its way until 15, and the worker late until 17. B0's gradient left worker 1 at 38, came at 38.5.
# worker 1: F0's value left at 10, came at 13: but it is its first task, so all of 0-16 is ramp-up.
DRAWN = Trace(
    {"workers": 3},
    [
        Span(0, "F", 0, 0, 0, 0.0, 10.0),
        Span(0, "F", 1, 0, 0, 17.0, 29.0, 15.0, 14.0, "version", "blocks.0", "7B9.0"),
        Span(0, "B", 0, 0, 0, 39.0, 47.0, 38.5, 38.0, "gradient", "", "1B0.0"),
        Span(1, "F", 0, 0, 1, 16.0, 37.0, 13.0, 10.0, "value", "", "0F0.0"),
        Span(1, "B", 0, 0, 1, 37.0, 43.0, 37.0, 37.0, "gradient", "loss", "1F0.0"),
    ],
)
WORKER_0 = {"version": 4.0, "gradient": 9.0, "link": 1.0 + 0.5, "late": 2.0 + 0.5, "ramp-up": 0.0, "ramp-down": 0.0}
WORKER_1 = {**dict.fromkeys(WORKER_0, 0.0), "ramp-up": 16.0, "ramp-down": 4.0}
WORKER_2 = {**dict.fromkeys(WORKER_0, 0.0), "ramp-up": 47.0}


def test_every_figure_of_the_drawing() -> None:
    idleness = Idleness.of(DRAWN)
    assert idleness.makespan * TICK == 47.0
    table = [{what: ticks * TICK for what, ticks in row.items()} for row in idleness.by_worker]
    assert table == [WORKER_0, WORKER_1, WORKER_2]
    idle = 7 + 10 + 16 + 4 + 47
    assert idleness.total * TICK == pytest.approx(idle)
    assert idleness.bubble == idle / (3 * 47) and sum(idleness.shares().values()) == pytest.approx(idleness.bubble)


def test_long_intervals_are_those_of_a_part_of_the_makespan() -> None:
    idleness = Idleness.of(DRAWN)
    told = [(idle.worker, (idle.end - idle.start) * TICK) for idle in idleness.long()]
    assert told == [(2, 47.0), (1, 16.0), (0, 10.0), (0, 7.0), (1, 4.0)]
    assert [idle.worker for idle in idleness.long(8 / 47)] == [2, 1, 0]


def test_an_interval_that_is_long_by_a_hair() -> None:
    spans = [Span(0, "F", 0, 0, 0, 0.0, 50.0), Span(0, "F", 1, 0, 0, 51.0, 100.0, cause="admitted", of="subnet 0")]
    (idle,) = Idleness.of(Trace({}, spans)).long()
    assert (idle.start * TICK, idle.end * TICK) == (50.0, 51.0)
    assert Idleness.of(Trace({}, [spans[0], spans[1]._replace(start=50.9)])).long() == []


def test_a_task_that_was_ready_in_time_makes_its_worker_late() -> None:
    spans = [Span(0, "F", 0, 0, 0, 0.0, 1.0), Span(0, "B", 0, 0, 0, 3.0, 4.0, 1.0, 1.0, "gradient", "loss", "0F0.0")]
    (idle,) = Idleness.of(Trace({}, spans)).intervals
    assert idle.parts == (("late", round(2 / TICK)),)


def test_a_trace_without_tasks() -> None:
    empty = Idleness.of(Trace({"workers": 2}, []))
    assert (empty.total, empty.bubble, empty.long(), empty.shares()) == (0, 0.0, [], {})


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Any spans, in any order; those of a worker do not meet."""
    spans: list[Span] = []
    workers = draw(st.integers(1, 4))
    time = st.floats(0.0, 10.0, allow_nan=False).map(lambda t: round(t, 6))
    causes = st.sampled_from("start value gradient weight version buffer admitted cut order".split())
    for worker in range(workers):
        at = draw(time)
        for y in range(draw(st.integers(0, 6))):
            start = at + draw(time)
            end = start + draw(time)
            left, ready = draw(st.floats(-5, 100)), draw(st.floats(-5, 100))
            spans.append(Span(worker, "F", y, 0, 0, start, end, ready, left, draw(causes)))
            at = end
    return Trace({"workers": workers}, draw(st.permutations(spans)))


@settings(derandomize=True, max_examples=300, deadline=None)
@given(traces())
def test_parts_add_up_to_the_bubble_exactly(trace: Trace) -> None:
    idleness = Idleness.of(trace)
    assert sum(sum(row.values()) for row in idleness.by_worker) == idleness.total
    for idle in idleness.intervals:
        assert idle.parts and all(what in PARTS and ticks > 0 for what, ticks in idle.parts)
        assert sum(ticks for _, ticks in idle.parts) == idle.end - idle.start
    if trace.spans:  # what is not idle is busy
        first = min(span.start for span in trace.spans)
        whole = len(idleness.by_worker) * (max(span.end for span in trace.spans) - first)
        busy = sum(span.end - span.start for span in trace.spans)
        assert idleness.total * TICK == pytest.approx(whole - busy, abs=1e-6)
