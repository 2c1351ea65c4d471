"""The simulator: every dependency is kept, everything runs once, nobody waits for ever, no order beats the bound."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings

from sennit.schedule.csp import CspOrder
from sennit.schedule.order import Task
from sennit.simulate.bounds import bounds
from sennit.simulate.drawing import draw
from sennit.simulate.engine import Simulation
from sennit.simulate.load import Cost, Piece
from sennit.simulate.outcome import Outcome
from sennit.supernet.sync import CspSync, Shared
from sennit.trace.span import Span
from tests.simulate.cases import Drawn, drawn
from tests.simulate.rules import Fixed, violations


def simulate(
    load: Fixed, in_flight: int, split: bool, always: Sequence[str] = (), shared: str = "strict", apart: bool = False
) -> tuple[Outcome, list[Span]]:
    spans: list[Span] = []
    orders: list[CspOrder] = []
    sync = CspSync(always, Shared.parse(shared))
    run = Simulation(load, orders, sync, in_flight, split=split, apart=apart, watch=spans.append)
    orders += [CspOrder(run.awaited) for _ in range(load.workers)]
    return run.run(), spans


def task_of(span: Span) -> Task:
    return Task(span.kind, span.seq_id, span.micro_batch, span.run)  # type: ignore[arg-type]


def one(cost: float = 1.0) -> Cost:
    return Cost(cost, 2 * cost, cost, cost)


def test_two_stages_by_hand() -> None:
    """
    time      0  1  2  3  4  5  6  7  8
    worker 0  F0 F1 .  .  B0 B0 .  B1 B1
    worker 1  .  F0 B0 B0 F1 B1 B1 .  .      backward first, so F1 waits for B0
    """
    load = Fixed(2, 2, ((Piece(0, ("a",), one()), Piece(1, ("b",), one())),))
    outcome, spans = simulate(load, 1, split=False)
    shown = {str(task_of(span)): (span.start, span.end) for span in spans}
    assert shown == {
        "0F0.0": (0, 1), "0F0.1": (1, 2), "1F0.0": (1, 2), "1B0.0": (2, 4), "0B0.0": (4, 6), "1F0.1": (4, 5),
        "1B0.1": (5, 7), "0B0.1": (7, 9),
    }  # fmt: skip
    assert outcome.makespan == 9 and outcome.bubble == pytest.approx(1 - 12 / 18)


def test_the_next_subnet_waits_for_the_shared_layer_alone() -> None:
    """Both use `a`; the second's own layer is another, and its forward there waits for nothing."""
    load = Fixed(1, 1, tuple((Piece(0, (name,), one()), Piece(0, ("a",), one())) for name in "xy"))
    _, spans = simulate(load, 2, split=True)
    order = [str(task_of(span)) for span in spans]
    assert order.index("0F1.0") > order.index("1F0.0")
    assert order.index("1F1.0") > order.index("1W0.0")  # the version of a that subnet 0 makes


def test_spans_say_what_came_last() -> None:
    """
    subnets 0 and 1 share `b`; micro-batches 0 and 1; both subnets in flight
    time      0   1   2   3   4   5   6   7   8   9  10  11  12  13  14
    worker 0  F00 F01 F10 F11 B00 B00 .   B01 B01 .   B10 B10 .   B11 B11
    worker 1  .   F00 B00 B00 F01 B01 B01 F10 B10 B10 F11 B11 B11 .   .     F10 waits for version 0 of b
    """
    pieces = [(Piece(0, (name,), one()), Piece(1, ("b",), one())) for name in "xy"]
    load = Fixed(2, 2, tuple(pieces))
    shown = {str(task_of(span)): span for span in simulate(load, 2, split=False)[1]}

    def came(name: str) -> tuple[object, ...]:
        return shown[name][7:12]  # ready, left, cause, of, by

    assert came("0F0.0") == (0, 0, "start", "", "")
    assert came("1F0.0") == (1, 1, "value", "", "0F0.0")
    assert came("1B0.0") == (2, 2, "gradient", "loss", "1F0.0")
    assert came("0B0.0") == (4, 4, "gradient", "", "1B0.0")
    assert came("1F1.0") == (7, 7, "version", "b", "1B0.1")
    shown = {str(task_of(span)): span for span in simulate(load, 1, split=True)[1]}
    assert came("1W0.0") == (3, 3, "weight", "", "1I0.0")
    last = max(shown[f"{r}W0.{j}"].end for r in (0, 1) for j in (0, 1))
    by = [name for name, span in shown.items() if span.end == last]
    assert came("0F1.0")[:4] == (last, last, "admitted", "") and came("0F1.0")[4] in by


@settings(max_examples=150, deadline=None, derandomize=True)
@given(drawn())
def test_every_rule_is_kept_and_no_order_beats_the_bound(case: Drawn) -> None:
    outcome, spans = case.run()
    tasks, steps = ([s for s in spans if (s.kind == "U") == u] for u in (False, True))
    assert violations(case.case, spans) == []
    assert outcome.tasks == len(tasks) and outcome.makespan == max(span.end for span in spans)
    ends = {f"{s.run}{s.kind}{s.seq_id}.{s.micro_batch}": s.end for s in tasks}
    stepped = {step.end for step in steps}
    reaches = {0.0, *(piece.reach for pieces in case.load.stream for piece in pieces)}
    for span in spans:
        assert span.left <= span.ready <= span.start
        end = ends[span.by] if span.by else 0.0
        inside = {piece.step for piece in case.load.stream[span.seq_id]} if span.cause == "gradient" else set[float]()
        early = set[float]() if case.apart else {end - step for step in inside}
        behind = set[float]()
        if span.cause in ("version", "admitted"):
            behind = {at + reach for at in (*stepped, end) for reach in reaches}
        assert span.left == end or span.left in early or (span.left > end and span.left in behind)
    setting = case.setting
    bound = bounds(case.load, case.sync(), setting.in_flight, split=setting.split, cluster=case.cluster)
    assert bound.makespan <= outcome.makespan * (1 + 1e-9)


def test_recorded_durations_can_be_played() -> None:
    """The same order of tasks on every worker, in the times that a run has taken."""
    load = Fixed(2, 2, tuple((Piece(0, (name,), one()), Piece(1, ("b",), one())) for name in "xy"))
    _, first = simulate(load, 2, split=False)
    took = {task_of(span): span.end - span.start + 0.125 * i for i, span in enumerate(first)}

    class Played(Simulation):
        def seconds(self, task: Task) -> float:
            return took[task]

    spans: list[Span] = []
    orders: list[CspOrder] = []
    run = Played(load, orders, CspSync([], Shared("strict")), 2, watch=spans.append)
    orders += [CspOrder(run.awaited) for _ in range(2)]
    run.run()
    assert {task_of(span): span.end - span.start for span in spans} == pytest.approx(took)


AWAITED = """\
worker 0  0F0 0F1 2F0 2F1  .  2B0 2B0 2B1 2B1  U   U  0B0 0B1  U   U
worker 1   .  1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B0 1B1 1B1  U   U   U   U"""
"""Worker 0 waits for 1B0, nobody for the step of run 3, whose gradients are complete before."""


def test_a_backward_that_is_ready_goes_before_a_step() -> None:
    backward = (1.0, 2.0, 2.0, 1.0)
    pieces = tuple(Piece(r % 2, (f"{r}",), Cost(1.0, backward[r], 0.0, 0.0), step=2.0) for r in range(4))
    outcome, spans = simulate(Fixed(2, 2, (pieces,)), 1, split=False, apart=True)
    assert draw(spans) == AWAITED
    assert outcome.makespan == 15 and outcome.tasks == 16
    assert outcome.busy == [4 + 6 + 4, 4 + 6 + 4]
