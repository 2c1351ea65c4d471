"""The simulator: every dependency is kept, everything runs once, nobody waits for ever, no order beats the bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sennit.schedule.csp import CspOrder
from sennit.schedule.order import Task
from sennit.simulate.bounds import bounds
from sennit.simulate.engine import Outcome, Simulation
from sennit.simulate.load import Cost, Piece
from sennit.supernet.sync import CspSync, Shared
from sennit.trace.span import Span


@dataclass(frozen=True)
class Fixed:
    """A load given piece by piece."""

    workers: int
    micro_batches: int
    stream: tuple[tuple[Piece, ...], ...]

    def subnets(self) -> Iterator[Sequence[Piece]]:
        return iter(self.stream)


def simulate(
    load: Fixed, in_flight: int, split: bool, always: Sequence[str] = (), shared: str = "strict"
) -> tuple[Outcome, list[Span]]:
    spans: list[Span] = []
    orders: list[CspOrder] = []
    sync = CspSync(always, Shared.parse(shared))
    run = Simulation(load, orders, sync, in_flight, split=split, watch=spans.append)
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
        return shown[name][7:]  # ready, left, cause, of, by

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


@st.composite
def loads(draw: st.DrawFn) -> Fixed:
    workers, m = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    runs, candidates = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    cost = st.floats(0.25, 4.0, width=16)
    table = {
        (r, c): Piece(
            draw(st.integers(0, workers - 1)), tuple(f"{r}.{c}.{i}" for i in range(draw(st.integers(0, 2)))),
            Cost(draw(cost), draw(cost), draw(cost), draw(cost)),
        )
        for r in range(runs) for c in range(candidates)
    }  # fmt: skip
    chosen = st.tuples(*[st.integers(0, candidates - 1) for _ in range(runs)])
    stream = draw(st.lists(chosen, min_size=1, max_size=7))
    return Fixed(workers, m, tuple(tuple(table[r, c] for r, c in enumerate(row)) for row in stream))


@settings(max_examples=300, deadline=None)
@given(loads(), st.integers(1, 5), st.booleans(), st.sampled_from(["strict", "delayed:2", "delayed:3", "frozen"]))
def test_every_dependency_is_kept(load: Fixed, in_flight: int, split: bool, shared: str) -> None:
    groups = [{group for piece in pieces for group in piece.groups} for pieces in load.stream]
    always = sorted(set.intersection(*groups))
    outcome, spans = simulate(load, in_flight, split, always, shared)
    when = {task_of(span): (span.start, span.end) for span in spans}
    by = {str(task): task for task in when}
    assert len(when) == len(spans) == outcome.tasks
    for span in spans:
        assert span.left <= span.ready <= span.start
        made = when[by[span.by]][1] if span.by else 0.0
        assert span.left == made
    last = "W" if split else "B"
    wanted = {
        Task(kind, y, j, r)  # type: ignore[arg-type]
        for y, pieces in enumerate(load.stream) for r in range(len(pieces)) for j in range(load.micro_batches)
        for kind in ("FIW" if split else "FB")
    }  # fmt: skip
    assert set(when) == wanted
    ends: dict[int, float] = {}
    for task, (begin, end) in when.items():
        kind, y, j, r = task
        piece = load.stream[y][r]
        assert end - begin == pytest.approx(piece.cost["FBIW".index(kind)])
        ends[y] = max(ends.get(y, 0.0), end)
        if kind == "F":
            assert not r or when[Task("F", y, j, r - 1)][1] <= begin
            for group in piece.groups:
                for x in writers_before(load, group, y, group in always, shared):
                    at = [s for s, p in enumerate(load.stream[x]) if group in p.groups]
                    for s in at:
                        for i in range(load.micro_batches):
                            assert when[Task(last, x, i, s)][1] <= begin  # type: ignore[arg-type]
        elif kind == "W":
            assert when[Task("I", y, j, r)][1] <= begin
        elif r + 1 < len(load.stream[y]):
            assert when[Task(kind, y, j, r + 1)][1] <= begin
        else:
            assert when[Task("F", y, j, r)][1] <= begin
    for worker in range(load.workers):
        mine = sorted((span.start, span.end) for span in spans if span.worker == worker)
        assert all(a[1] <= b[0] for a, b in pairwise(mine))
    for y in range(in_flight, len(load.stream)):
        first = min(begin for (kind, z, _, r), (begin, _) in when.items() if z == y and kind == "F" and not r)
        assert sum(ends[x] <= first for x in range(y)) >= y - in_flight + 1
    bound = bounds(load, CspSync(always, Shared.parse(shared)), in_flight, split=split)
    assert bound.makespan <= outcome.makespan * (1 + 1e-9)


def writers_before(load: Fixed, group: str, y: int, always: bool, shared: str) -> list[int]:
    """Subnets whose gradients are in the version of a group that `y` must read."""
    if always and shared == "frozen":
        return []
    lag = int(shared.partition(":")[2]) if always and shared.startswith("delayed") else 1
    return [x for x in range(y - lag + 1) if any(group in piece.groups for piece in load.stream[x])]
