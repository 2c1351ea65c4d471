"""Idle intervals in words: cause and maker, and what all waited for in the end."""

from __future__ import annotations

from typing import Any

import pytest

from sennit.trace.events import Trace
from sennit.trace.idle import TICK, Idleness
from sennit.trace.reasons import Reasons
from sennit.trace.span import Span

# time      0         10        20        30        40        50
# worker 0  FFFFF                                        BBBBB     F0 0-5, B0 45-50
# worker 1       FFFFFF                         BBBBBBBBB          F0 5-11, B0 36-45, which waits for its loss
# worker 2  VVVVVVVVVVVVV             FFFFFFFFFF                   another subnet's B 0-13, F0 26-36
#
# F0 on worker 2 has its value since 11, and lacks `blocks.2` until 26: that is what worker 0 waits for in the end.
DRAWN = [
    Span(0, "F", 9, 0, 0, 0.0, 5.0),
    Span(0, "B", 9, 0, 0, 45.0, 50.0, 45.0, 45.0, "gradient", "", "1B9.0"),
    Span(1, "F", 9, 0, 1, 5.0, 11.0, 5.0, 5.0, "value", "", "0F9.0"),
    Span(1, "B", 9, 0, 1, 36.0, 45.0, 36.0, 36.0, "gradient", "", "2F9.0"),
    Span(2, "B", 8, 0, 2, 0.0, 13.0),
    Span(2, "F", 9, 0, 2, 26.0, 36.0, 26.0, 26.0, "version", "blocks.2", "2B8.0"),
]


def words(spans: list[Span], share: float = 0.01) -> dict[tuple[int, float], str]:
    """By worker and beginning."""
    trace = Trace({}, spans)
    reasons = Reasons(trace)
    return {(idle.worker, round(idle.begins, 6)): reasons.words(idle) for idle in Idleness.of(trace).long(share)}


def test_every_interval_of_the_drawing() -> None:
    root = "in the end for the weights of blocks.2, stepped after 2B8.0 on worker 2"
    assert words(DRAWN) == {
        (0, 5.0): f"waited for the gradient from 1B9.0 on worker 1; {root}",
        (1, 0.0): "before its first task: waited for the output of 0F9.0 on worker 0",
        (1, 11.0): f"waited for the gradient from 2F9.0 on worker 2; {root}",
        (1, 45.0): "no task came any more",
        (2, 13.0): "waited for the weights of blocks.2, stepped after 2B8.0 on worker 2",
        (2, 36.0): "no task came any more",
    }


def test_waiting_is_put_down_to_what_all_waited_for() -> None:
    trace = Trace({}, DRAWN)
    idleness = Idleness.of(trace)
    table = [{what: n * TICK for what, n in row.items() if n} for row in Reasons(trace).in_the_end(idleness)]
    expected: list[dict[str, float]] = [
        {"version": 40.0},
        {"ramp-up": 5.0, "version": 25.0, "ramp-down": 5.0},
        {"version": 13.0, "ramp-down": 14.0},
    ]
    assert table == [pytest.approx(row) for row in expected]


def test_a_maker_that_was_at_work_is_the_end_of_the_way() -> None:
    busy = [*DRAWN[:4], DRAWN[4]._replace(end=26.0), DRAWN[5]._replace(ready=13.0)]
    assert words(busy)[1, 11.0] == "waited for the gradient from 2F9.0 on worker 2", "which ran another task first"
    steps = [*DRAWN[:4], DRAWN[4]._replace(end=26.0), DRAWN[5]]
    assert words(steps)[1, 11.0].endswith("after 2B8.0 on worker 2"), "the task before made what it waited for"
    long = [*DRAWN[:4], DRAWN[4]._replace(end=9.0), DRAWN[5]._replace(left=9.0, ready=9.0, start=10.0)]
    assert words(long)[1, 11.0] == "waited for the gradient from 2F9.0 on worker 2", "which ran all the while"


def test_a_trace_that_goes_round_in_a_circle_ends() -> None:
    circle = [
        Span(0, "F", 0, 0, 0, 5.0, 6.0, 5.0, 5.0, "value", "", "1F0.0"),
        Span(1, "F", 0, 0, 1, 4.0, 6.0, 4.0, 4.0, "value", "", "0F0.0"),
        Span(2, "F", 0, 0, 2, 0.0, 1.0),
    ]
    assert words(circle)[1, 0.0] == "before its first task: waited for the output of 0F0.0 on worker 0"


def test_a_worker_without_a_task_and_one_that_was_late() -> None:
    late = [Span(0, "F", 0, 0, 0, 0.0, 1.0), Span(0, "B", 0, 0, 0, 3.0, 4.0, 1.0, 1.0, "gradient", "loss", "0F0.0")]
    assert words(late) == {(0, 1.0): "nothing was missing: the loss from 0F0.0 on worker 0 was there"}
    slow = [late[0], late[1]._replace(ready=2.0)]
    assert words(slow) == {(0, 1.0): "on its way: the loss from 0F0.0 on worker 0"}
    idle = Idleness.of(Trace({"workers": 2}, late)).long()[0]
    assert Reasons(Trace({}, late)).words(idle) == "it had no task at all"


@pytest.mark.parametrize(
    ("span", "words"),
    [
        ({"cause": "start"}, "the run to begin"),
        ({"cause": "gradient", "of": "loss", "by": "0F9.0"}, "the loss from 0F9.0 on worker 0"),
        ({"cause": "weight", "by": "2I1.0"}, "its input gradient, 2I1.0"),
        ({"cause": "version", "of": "a.1"}, "the weights of a.1"),
        ({"cause": "buffer", "of": "bn#buffers", "by": "0F9.0"}, "its turn on the buffers bn, after 0F9.0 on worker 0"),
        ({"cause": "admitted", "of": "draw"}, "its subnet to be drawn"),
        ({"cause": "admitted", "of": "subnet 3"}, "its subnet to be let in, after subnet 3 ended"),
        ({"cause": "admitted", "by": "0F9.0"}, "its subnet to be let in, after 0F9.0 on worker 0 ended"),
        ({"cause": "cut"}, "the cut before its subnet (a checkpoint or an evaluation)"),
        ({"cause": "order"}, "its turn in the order of its worker"),
    ],
)
def test_words_for_causes(span: dict[str, Any], words: str) -> None:
    assert Reasons(Trace({}, DRAWN)).cause(Span(1, "F", 1, 0, 1, 0.0, 1.0, **span)) == words  # type: ignore[arg-type]
