"""Host memory that cannot be pinned: it is told why, nothing else is blamed for it, and the bits stay."""

from __future__ import annotations

import mmap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.gpus import apart, needs_gpu, on_gpu
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_budget import share_of
from tests.runtime.test_engines import violations
from tests.runtime.test_sync_rules import CHAIN

from sennit.memory import cuda, pinning
from sennit.memory.device import HostDevice
from sennit.memory.pinning import address, pin
from sennit.runtime.forked import in_child


class Runtime:
    """A CUDA runtime that refuses, or does not."""

    def __init__(self, code: int) -> None:
        self.code, self.asked = code, list[tuple[int, int, int]]()

    def cudaHostRegister(self, pointer: int, size: int, flags: int) -> int:  # noqa: N802 - CUDA's name
        self.asked.append((pointer, size, flags))
        return self.code

    def cudaGetErrorString(self, code: int) -> str:  # noqa: N802 - CUDA's name
        return f"error {code}"


@pytest.mark.parametrize("code", [0, 2])
def test_why_it_is_refused_is_told(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, memory = Runtime(code), mmap.mmap(-1, 3 * mmap.PAGESIZE)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    forgotten: list[Any] = []
    monkeypatch.setattr(pinning, "forget_error", forgotten.append)
    told = pin(memory, torch.device("cpu"))
    assert runtime.asked == [(address(memory), 3 * mmap.PAGESIZE, 0)]
    assert told == ("" if not code else f"cudaHostRegister of {3 * mmap.PAGESIZE:,} bytes: error 2")
    assert len(forgotten) == bool(code), "what CUDA keeps of a refusal is consumed"


def test_the_store_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "pin", lambda memory, device: "not here")
    host: Any = SimpleNamespace(memory=None, optimizer_name="sgd", optimizer_arguments={})
    store = cuda.CudaStore(host, torch.device("cpu"), frozenset(), lambda pinned: HostDevice())
    assert not store.pinned and store.unpinned == "not here"


def refusing(memory: mmap.mmap, device: torch.device) -> str:
    """CUDA itself refuses: part of the memory is registered already."""
    runtime: Any = torch.cuda.cudart()
    assert not int(runtime.cudaHostRegister(address(memory), mmap.PAGESIZE, 0))
    try:
        return pin(memory, device)
    finally:  # a copy across the end of what is registered is refused, too
        assert not int(runtime.cudaHostUnregister(address(memory)))


@on_gpu
def test_no_kernel_is_blamed_for_a_refusal() -> None:
    device = torch.device("cuda", 0)
    torch.ones(1, device=device)
    assert refusing(mmap.mmap(-1, 4 * mmap.PAGESIZE), device)
    assert float(torch.ones(3, device=device).add_(1).sum()) == 6.0


@needs_gpu
@pytest.mark.parametrize("shared", ["strict", "delayed:3"])
def test_a_run_whose_memory_cannot_be_pinned_has_the_same_bits(shared: str, tmp_path: Path) -> None:
    assert apart(differing, shared, tmp_path) == []


def differing(shared: str, folder: Path) -> list[str]:
    """What of a run without pinned memory is not as it should be."""
    made = recipe(**{**CHAIN, "steps": 12, "shared": shared})
    plain = in_child(lambda: hashes(run(made, folder / "plain", engine="plain", device="cuda")))
    cuda.pin = refusing  # workers inherit it
    found: list[str] = []
    for workers in range(1, min(2, torch.cuda.device_count()) + 1):
        for budget in (0.0, 1.5 * share_of(made)[0]):
            out = folder / f"{workers}, {budget}"
            result = run(made, out, workers=workers, device="cuda", budget=budget)
            found += [f"{out.name}: other bits"] * (hashes(result) != plain)
            found += [f"{out.name}: {broken}" for broken in violations(out)]
            found += [f"{out.name}: not told"] * (result["pinned"] is not False or not result["pinning_refused"])
    return found
