"""CUDA graphs give the bits of eager layers, under every precision, with dropout and buffers."""

from __future__ import annotations

import gc
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sennit.executor.capture import CudaGraphs, NotCapturable
from sennit.runtime.forked import in_child
from tests.executor.test_graphs import counted
from tests.gpus import apart, needs_gpu
from tests.runtime.runs import hashes, recipe, run

pytestmark = needs_gpu

CASES: dict[str, dict[str, Any]] = {
    "fp32": {},
    "tf32": {"precision": "tf32", "shared": "delayed:3"},
    "bf16": {"precision": "bf16", "clip": "layer:0.5"},
    "bulk": {"sync": "bulk:4", "shared": "frozen", "optimizer": {"name": "sgd", "momentum": 0.9}},
}


def differing(case: str, folder: Path) -> list[str]:
    """What of a case is not as it should be."""
    made = recipe(**CASES[case])
    plain = in_child(lambda: hashes(run(made, folder / "plain", engine="plain", device="cuda")))
    found: list[str] = []
    for i, placed in enumerate(({}, {"release": "layer", "split": True})):
        got = hashes(run(made, folder / f"{i}", device="cuda", executor="graphs", **placed))
        found += [f"{placed}: other bits"] * (got != plain)
        counts = counted(folder / f"{i}")
        found += [f"{placed}: nothing was replayed, {counts}"] * (not counts["replayed steps"])
    return found


@pytest.mark.parametrize("case", CASES)
def test_replayed_layers_give_the_bits_of_the_plain_loop(case: str, tmp_path: Path) -> None:
    assert apart(differing, case, tmp_path) == []


def refusals() -> list[str]:
    """Why calls are not captured; the device works afterwards."""
    device = torch.device("cuda", 0)
    graphs = CudaGraphs(device)
    x = torch.ones(4, 4, device=device)
    found: list[str] = []

    def looks() -> None:
        if x.sum().item() > 0:
            x.mul_(1.0)

    def draws() -> None:
        x.add_(random.random())

    for call in (looks, draws, lambda: x.copy_(torch.ones(4, 4))):
        try:
            graphs.capture(call)
        except NotCapturable as error:
            found.append(str(error))
    y = torch.zeros(4, 4, device=device)
    graph = graphs.capture(lambda: y.copy_(F.dropout(x, 0.5) * 2))
    masks: list[Tensor] = []
    for key in (5, 6, 5):
        graphs.seed(key)
        graph.replay()
        masks.append(y.clone())
    graphs.seed(5)
    found.append(f"{torch.equal(masks[0], masks[2])} {torch.equal(masks[0], masks[1])}")
    found.append(str(torch.equal(masks[0], F.dropout(x, 0.5) * 2)))
    return found


def test_what_looks_at_results_or_draws_on_the_host_is_not_captured() -> None:
    waits, draws = "it waits for the device", "it draws random numbers on the host"
    assert apart(refusals) == [waits, draws, waits, "True False", "True"]


def garbage() -> list[float]:
    """Captures while another graph is garbage, in a call that makes the collector come by. What replays give."""
    device = torch.device("cuda", 0)
    graphs = CudaGraphs(device)
    y = torch.zeros(4, device=device)
    found: list[float] = []
    gc.set_threshold(50)
    for _ in range(3):
        held: list[Any] = [graphs.capture(lambda: y.add_(1))]
        held.append(held)
        del held

        def call() -> None:
            kept: list[list[int]] = []
            for n in range(1000):
                kept.append([n])
            y.mul_(2)

        graph = graphs.capture(call)
        y.fill_(3)
        graph.replay()
        found.append(float(y[0]))
    return [*found, float(gc.isenabled())]


def test_a_graph_that_is_garbage_does_not_spoil_the_next_capture() -> None:
    assert apart(garbage) == [6.0, 6.0, 6.0, 1.0]
