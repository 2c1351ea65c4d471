"""CUDA graphs that keep what their forward made give the bits of eager layers, whatever is replayed between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from sennit.executor.capture import CudaGraphs
from sennit.runtime.forked import in_child
from sennit.supernet.context import set_kernel_flags
from tests.executor.test_cuda_graphs import CASES
from tests.executor.test_graphs import counted
from tests.executor.together import PLENTY, Together
from tests.gpus import apart, needs_gpu
from tests.runtime.runs import hashes, recipe, run

pytestmark = needs_gpu

KEPT: dict[str, Any] = {"device": "cuda", "executor": "graphs", "activations": "keep"}


def differing(case: str, folder: Path) -> list[str]:
    """What of a case is not as it should be."""
    made = recipe(**CASES[case])
    plain = in_child(lambda: hashes(run(made, folder / "plain", engine="plain", device="cuda")))
    found: list[str] = []
    placed: tuple[dict[str, Any], ...] = (
        {}, {"release": "layer", "split": True, "in_flight": 4, "activations_gib": 0.1}, {"split": True, "budget": 1.0}
    )  # fmt: skip
    for i, more in enumerate(placed):
        got = hashes(run(made, folder / f"{i}", **KEPT, **more))
        found += [f"{more}: other bits"] * (got != plain)
        counts = counted(folder / f"{i}")
        found += [f"{more}: nothing was kept, {counts}"] * (not counts["kept steps"])
    return found


@pytest.mark.parametrize("case", CASES)
def test_kept_layers_give_the_bits_of_the_plain_loop(case: str, tmp_path: Path) -> None:
    assert apart(differing, case, tmp_path) == []


def orders(precision: str, splits: bool, seeds: range) -> dict[str, Any]:
    """Several micro-batches at once, in any order, with failures. Raises where bits differ."""
    set_kernel_flags(precision)
    device = torch.device("cuda", 0)
    kept, refused = 0, set[str]()
    for seed in seeds:
        together = Together(
            seed, 6, PLENTY if seed % 2 else 64 << 20, CudaGraphs(device), device, precision, splits=splits
        )
        together.any_order(together.flights(3), full=seed % 3 == 0)
        kept += together.graphs.counts["kept steps"]
        refused |= {*together.graphs.refused}
    return {"kept": kept > 0, "refused": sorted(refused)}


@pytest.mark.parametrize("splits", [False, True], ids=["whole", "split"])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_any_order_and_failures(precision: str, splits: bool) -> None:
    assert apart(orders, precision, splits, range(4)) == {"kept": True, "refused": []}


def memory() -> list[str]:
    """What is not as it should be with the memory of instances."""
    set_kernel_flags("fp32")
    device = torch.device("cuda", 0)
    together = Together(1, 6, PLENTY, CudaGraphs(device), device)
    together.all_forwards_first(together.flights(2))
    held = together.instances.nbytes
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved(device)
    room = together.capturing.room()
    together.graphs.relieve()
    torch.cuda.empty_cache()
    left = before - torch.cuda.memory_reserved(device)
    found = [f"{together.instances.nbytes} bytes are still held"] * (together.instances.nbytes > 0)
    found += [f"{held} bytes were counted, {left} have left the device"] * (not 0 < left <= 2 * held)
    found += ["there is no more room than before"] * (together.capturing.room() <= room)
    together.instances.limit = PLENTY
    together.all_forwards_first(together.flights(2))
    return found


def test_memory_of_instances_is_counted_and_leaves_the_device() -> None:
    assert apart(memory) == []
