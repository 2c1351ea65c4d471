"""Every named schedule: drawings in its module, and what is known of it."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from sennit.schedule.chimera import chimera
from sennit.schedule.order import Order, Task
from sennit.schedule.pipedream import StreamOrder
from sennit.schedule.policy import MODULES, policy
from sennit.schedule.setting import Setting
from sennit.simulate.drawing import draw
from sennit.simulate.engine import Simulation
from sennit.simulate.load import Cost, Piece
from sennit.simulate.outcome import Outcome
from sennit.supernet.sync import Shared
from sennit.supernet.sync_rule import SyncRule
from sennit.trace.span import Span
from tests.simulate.rules import Fixed

EQUAL = Cost(1.0, 1.0, 1.0, 1.0)
TWICE = Cost(1.0, 2.0, 1.0, 1.0)


def run(name: str, setting: Setting, subnets: int, cost: Cost = EQUAL) -> tuple[Outcome, list[Span]]:
    """A static network under a policy."""
    held = policy(name)
    stream: list[tuple[Piece, ...]] = []
    for y in range(subnets):
        where = [
            tuple(held.place(setting, s, setting.number(y, j)) for j in range(setting.micro_batches))
            for s in range(held.stages(setting))
        ]
        stream.append(tuple(Piece(w[0], (f"{s}",), cost, spread=w) for s, w in enumerate(where)))
    load = Fixed(setting.workers, setting.micro_batches, tuple(stream))
    orders: list[Order] = []
    spans: list[Span] = []
    sync = SyncRule.parse(held.sync).make([], Shared("strict"), setting.workers)
    simulation = Simulation(load, orders, sync, setting.in_flight, split=bool(held.split), watch=spans.append)
    orders += [held.order(worker, setting) for worker in range(setting.workers)]
    return simulation.run(), spans


DRAWN: list[tuple[str, Setting, int]] = [
    ("zero-bubble", Setting(workers=2, micro_batches=3), 1),
    ("chimera", Setting(workers=4, micro_batches=4), 1),
    ("pipedream", Setting(workers=3, micro_batches=1, in_flight=9), 9),
]


@pytest.mark.parametrize(("name", "setting", "subnets"), DRAWN, ids=[name for name, _, _ in DRAWN])
def test_modules_draw_what_runs(name: str, setting: Setting, subnets: int) -> None:
    text = import_module(f"sennit.schedule.{MODULES[name]}").__doc__ or ""
    drawn = [line.split()[2:] for line in text.splitlines() if re.match(r"\s*worker \d+  ", line)]
    shown = draw(run(name, setting, subnets)[1])
    rows = [re.sub(r"(\d[FB]\d+)\.0\b", r"\1", line).split()[2:] for line in shown.splitlines()]
    assert len(drawn) == setting.workers
    for ours, theirs in zip(drawn, rows, strict=True):
        cells = [cell for cell in ours if cell != "..."]
        assert theirs[: len(cells)] == cells and (cells != ours or set(theirs[len(cells) :]) <= {"."})


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_chimera_waits_half_as_long_as_1f1b(workers: int) -> None:
    """D micro-batches: D - 2 slots of waiting against 2 (D - 1) (Li and Hoefler 2021, Table 2)."""
    setting = Setting(workers=workers, micro_batches=workers)
    outcome, _ = run("chimera", setting, 1)
    assert outcome.makespan == 2 * workers + workers - 2
    assert run("1f1b", setting, 1)[0].makespan == 2 * workers + 2 * (workers - 1)


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5])
def test_chimera_gives_each_worker_both_ways(workers: int) -> None:
    for worker in range(workers):
        held = chimera(worker, workers, 6)
        assert {(a.stage, a.micro_batch % 2) for a in held} == {(worker, 0), (workers - 1 - worker, 1)}
        assert len(held) == len(set(held)) == 12


def test_pipedream_has_no_flush() -> None:
    """Ramps at the ends alone: D - 1 forwards and backwards for any number of subnets."""
    for subnets in (4, 16, 64):
        outcome, _ = run("pipedream", Setting(workers=4, micro_batches=1, in_flight=5), subnets, TWICE)
        assert outcome.makespan == 3 * subnets + 3 * 3
        bulks, _ = run("1f1b", Setting(workers=4, micro_batches=1, bulk=4, in_flight=4), subnets, TWICE)
        assert bulks.makespan == subnets // 4 * (3 * 4 + 3 * 3)


def test_pipedream_goes_on_backwards_and_never_lets_a_forward_overtake() -> None:
    order = StreamOrder(ahead=2, micro_batches=1)
    order.add(Task("F", 1, 0, 0))
    assert order.pop() is None
    order.add(Task("F", 0, 0, 0))
    assert order.pop() == Task("F", 0, 0, 0)
    order.add(Task("B", 0, 0, 0))
    assert order.pop() == Task("F", 1, 0, 0)
    assert order.pop() == Task("B", 0, 0, 0)


def test_a_warm_up_covers_a_slow_start() -> None:
    """More forwards under way hold more activations and change nothing else."""
    plain, _ = run("1f1b", Setting(workers=4, micro_batches=8), 1)
    more, spans = run("1f1b", Setting(workers=4, micro_batches=8, warmup=(7, 5, 3, 1)), 1)
    assert more.makespan == plain.makespan
    first = [span.kind for span in spans if span.worker == 0]
    assert first.index("B") == 7


def test_rounds() -> None:
    """A bulk of 5 with 2 in flight goes in rounds of 2, 2 and 1, and then anew."""
    setting = Setting(workers=2, micro_batches=3, bulk=5, in_flight=2)
    assert [setting.number(y, 0) // 3 for y in range(10)] == [0, 1, 0, 1, 0, 0, 1, 0, 1, 0]
