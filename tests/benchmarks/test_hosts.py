"""What a host takes is found again in spans that were made from it."""

from __future__ import annotations

import json

import pytest
from benchmarks.speed.hosts import HALF, hosts_of, launches_of, shown

from sennit.simulate.launched import Launches
from sennit.trace.span import Span

TRUE = Launches(
    task=0.25, forward=1.0, backward=2.0, forward_layer=0.125, backward_layer=0.5, input_layer=0.25,
    weight_layer=0.375, step=4.0, step_group=0.0625, subnet=8.0,
)  # fmt: skip
M, LAYERS, SUBNETS = 2, 12, 6


def spans(runs: int, *, split: bool = False) -> list[Span]:
    """Of a host that launches subnet after subnet, and waits for the loss in some backwards."""
    made, now, each = list[Span](), 0.0, LAYERS // runs
    for y in range(SUBNETS):
        now += TRUE.subnet
        tasks = [("F", TRUE.of("F", each)) for _ in range(M * runs)]
        back = [(kind, TRUE.of(kind, each)) for kind in ("IW" if split else "B")]
        tasks += (back * M + [("U", TRUE.step + each * TRUE.step_group)]) * runs
        for kind, host in tasks:
            now += TRUE.task
            waited = float(y) if kind in "BI" else 0.0
            made.append(Span(0, kind, y, 0, 0, now + 1.0, now + 1.5, launched=now, host=host + waited, waited=waited))
            now += host + waited
    return made


def test_what_a_host_takes_is_found_again() -> None:
    alone, joined = (hosts_of(spans(runs), range(2, 4)) for runs in (LAYERS, 1))
    assert alone is not None and joined is not None
    assert alone["F"] == (M * LAYERS * 1.125, M * LAYERS) and joined["U"] == (4.75, 1)
    halves = hosts_of(spans(1, split=True), range(2, 4))
    found = launches_of(alone, joined, M * LAYERS, LAYERS, halves)
    assert [*vars(found).values()] == pytest.approx([*vars(TRUE).values()])
    found = launches_of(alone, joined, M * LAYERS, LAYERS)
    assert (found.input_layer, found.weight_layer) == (pytest.approx(HALF * 0.5), pytest.approx(HALF * 0.5))


def test_without_the_other_row_all_is_the_layers() -> None:
    told = hosts_of(spans(LAYERS), range(2, 4))
    assert told is not None
    found = launches_of(told, None, M * LAYERS, LAYERS)
    assert (found.forward, found.forward_layer, found.step_group, found.subnet) == (0.0, 1.125, 4.0625, 0.0)
    assert found.task == told["between"][0] / told["between"][1]


def test_a_file_tells_the_same() -> None:
    told = hosts_of(spans(LAYERS), range(2, 4))
    assert shown(json.loads(json.dumps({"hosts": told}))) == told and shown({"hosts": None}) is shown({}) is None


def test_a_trace_of_a_cpu_tells_nothing() -> None:
    assert hosts_of([Span(0, "F", y, 0, 0, 0.0, 1.0) for y in range(4)], range(1, 2)) is None
