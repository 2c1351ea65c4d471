"""Schedules of static networks in the simulator: the drawings of their modules, and the bubbles of the literature."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

import pytest

from sennit.schedule import gpipe as gpipe_module
from sennit.schedule import interleaved as interleaved_module
from sennit.schedule import one_f_one_b as one_f_one_b_module
from sennit.schedule.action import Action
from sennit.schedule.gpipe import gpipe
from sennit.schedule.interleaved import interleaved
from sennit.schedule.listed import ListOrder
from sennit.schedule.one_f_one_b import one_f_one_b
from sennit.schedule.zbv import zbv
from sennit.simulate import drawing as drawing_module
from sennit.simulate.drawing import draw
from sennit.simulate.engine import Simulation
from sennit.simulate.load import Cost, Piece
from sennit.simulate.outcome import Outcome
from sennit.supernet.sync import CspSync, Shared
from sennit.trace.span import Span


@dataclass(frozen=True)
class Static:
    """One network, `batches` mini-batches; stage s is on worker `where[s]`."""

    where: tuple[int, ...]
    micro_batches: int
    cost: Cost
    batches: int = 1

    @property
    def workers(self) -> int:
        return 1 + max(self.where)

    def subnets(self) -> Iterator[Sequence[Piece]]:
        pieces = [Piece(worker, (f"stage {s}",), self.cost) for s, worker in enumerate(self.where)]
        return iter([pieces] * self.batches)


def run(
    load: Static, actions: Callable[[int], list[Action]], split: bool = False, bulk: int = 1, shared: str = "strict"
) -> tuple[Outcome, list[Span]]:
    spans: list[Span] = []
    m = load.micro_batches
    orders = [ListOrder(actions(k), m, bulk, lambda: load.batches) for k in range(load.workers)]
    always = [f"stage {s}" for s in range(len(load.where))]
    sync = CspSync(always, Shared.parse(shared))
    held = Simulation(load, orders, sync, bulk, split=split, watch=spans.append)
    return held.run(), spans


def looped(workers: int, chunks: int) -> tuple[int, ...]:
    return tuple(s % workers for s in range(workers * chunks))


def drawn(module: ModuleType) -> list[list[str]]:
    """Cells of the drawing in a module's docstring."""
    return [line.split()[2:] for line in (module.__doc__ or "").splitlines() if re.match(r"\s*worker \d+  ", line)]


EQUAL = Cost(1.0, 1.0, 1.0, 1.0)

DRAWINGS: list[tuple[ModuleType, Static, Callable[[int], list[Action]]]] = [
    (gpipe_module, Static(looped(2, 1), 3, EQUAL), lambda k: gpipe(k, 3)),
    (one_f_one_b_module, Static(looped(2, 1), 3, EQUAL), lambda k: one_f_one_b(k, 2, 3)),
    (interleaved_module, Static(looped(2, 2), 2, EQUAL), lambda k: interleaved(k, 2, 2, 2)),
    (drawing_module, Static(looped(2, 1), 2, EQUAL), lambda k: one_f_one_b(k, 2, 2)),
]


@pytest.mark.parametrize(("module", "load", "actions"), DRAWINGS, ids=[m.__name__ for m, _, _ in DRAWINGS])
def test_modules_draw_what_runs(module: ModuleType, load: Static, actions: Callable[[int], list[Action]]) -> None:
    _, spans = run(load, actions)
    cells = [line.split()[2:] for line in draw(spans).splitlines()]
    assert [ended(row) for row in drawn(module)] == [ended(row) for row in cells]


def ended(row: list[str]) -> list[str]:
    """A row without the waiting at its end."""
    return ended(row[:-1]) if row and row[-1] == "." else row


@pytest.mark.parametrize("m", [4, 8, 32])
@pytest.mark.parametrize("workers", [2, 4, 8])
def test_bubbles_of_the_literature(workers: int, m: int) -> None:
    """(D - 1) / (M + D - 1) for GPipe and 1F1B, (D - 1) / (V M + D - 1) for V chunks (Narayanan et al. 2021, 2.2)."""
    twice = Cost(1.0, 2.0, 1.0, 1.0)
    wanted = (workers - 1) / (m + workers - 1)
    assert run(Static(looped(workers, 1), m, twice), lambda k: gpipe(k, m))[0].bubble == pytest.approx(wanted)
    outcome = run(Static(looped(workers, 1), m, twice), lambda k: one_f_one_b(k, workers, m))[0]
    assert outcome.bubble == pytest.approx(wanted)
    if m % workers == 0:
        for chunks in (2, 3):
            load = Static(looped(workers, chunks), m, twice)
            outcome = run(load, lambda k, v=chunks: interleaved(k, workers, m, v))[0]
            assert outcome.bubble == pytest.approx((workers - 1) / (chunks * m + workers - 1))


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_zero_bubble(workers: int) -> None:
    """ZB-H1 waits a third of what 1F1B does: (D - 1)(F + I - W) of 3 M + ...; ZB-V waits D - 1 in all (Qi 2023)."""
    m = 4 * workers
    load = Static(looped(workers, 1), m, EQUAL)
    outcome = run(load, lambda k: interleaved(k, workers, m, 1, split=True), split=True)[0]
    assert outcome.makespan == pytest.approx(3 * m + workers - 1)
    there_and_back = (*range(workers), *reversed(range(workers)))
    outcome = run(Static(there_and_back, m, EQUAL), lambda k: zbv(k, workers, m), split=True)[0]
    assert outcome.makespan <= 6 * m + workers - 1 + 1e-9


def test_bulks_and_a_last_one_cut_short() -> None:
    """5 subnets in bulks of 2: the last bulk has one."""
    load = Static(looped(2, 1), 1, EQUAL, batches=5)
    always = ["stage 0", "stage 1"]
    orders = [ListOrder(gpipe(k, 2), 1, 2, lambda: 5) for k in range(2)]
    outcome = Simulation(load, orders, CspSync(always, Shared("frozen")), 2).run()
    assert outcome.tasks == 20 and outcome.subnets == 5
