"""Layers without a budget set out for a GPU when a subnet comes in: same bits, nothing read before it has come.

    let in        y ─────── y + 1
    on the way      layers of y that were never used here
    forward                        y: uses them

The GPU is memory of the host whose copies come when they are waited for, and are poison until then.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from sennit.errors import RunError
from sennit.memory.cuda import CudaStore, Slot
from sennit.runtime.tasks import Tasks
from tests.runtime.host_gpu import stand_in
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_engines import violations
from tests.runtime.test_sync_rules import CHAIN

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one": (CHAIN, {"workers": 1}),
    "stages": (CHAIN, {"workers": 2}),
    "chunks, split": (CHAIN, {"workers": 2, "chunks": 2, "split": True}),
    "by layer": (CHAIN, {"workers": 2, "release": "layer"}),
    "delayed": ({**CHAIN, "shared": "delayed:3"}, {"workers": 2}),
    "frozen": ({**CHAIN, "shared": "frozen"}, {"workers": 2}),
    "bulks": ({**CHAIN, "sync": "bulk:2"}, {"workers": 2, "schedule": "gpipe"}),
    "tied, batch norm": ({}, {"workers": 2}),
}


@pytest.mark.parametrize("case", CASES)
def test_bits_are_those_of_the_plain_loop(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes, placed = CASES[case]
    made = recipe(**{**changes, "steps": 12})
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    stand_in(monkeypatch, 2)
    assert hashes(run(made, tmp_path / "run", device="cuda", **placed)) == plain
    assert not violations(tmp_path / "run")


def test_a_run_that_goes_on_has_its_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers have stepped before they are first used: optimizer state comes as well."""
    made = recipe(**{**CHAIN, "steps": 16})
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    stand_in(monkeypatch, 2)
    run(made, tmp_path / "run", steps=6, device="cuda", workers=2)
    run(made, tmp_path / "run", steps=11, resume=True, device="cuda", workers=1)
    assert hashes(run(made, tmp_path / "run", resume=True, device="cuda", workers=2, chunks=2)) == plain


def test_who_reads_before_it_has_come_reads_poison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = recipe(**{**CHAIN, "steps": 4})
    stand_in(monkeypatch, 1)
    monkeypatch.setattr(CudaStore, "_use", lambda self, slot: None)
    with pytest.raises(RunError, match="is nan in micro-batch 0"):
        run(made, tmp_path / "run", device="cuda", workers=1)


def test_layers_are_on_their_way_before_a_forward_wants_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No forward finds that a layer has yet to set out."""
    made = recipe(**{**CHAIN, "steps": 8})
    stand_in(monkeypatch, 1)
    real = CudaStore.acquire

    def acquire(self: CudaStore, group: str, version: int) -> Any:
        slot: Slot | None = self.slots.get((group, 0))
        if slot is None or slot.version is None:
            raise AssertionError(f"{group} has not set out")
        return real(self, group, version)

    monkeypatch.setattr(CudaStore, "acquire", acquire)
    run(made, tmp_path / "run", device="cuda", workers=1)


@pytest.mark.parametrize(
    "said", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("CUDA error: out of memory")]
)
@pytest.mark.parametrize("where", ["let in", "read"])
def test_a_device_that_is_full_then_makes_room(
    where: str, said: RuntimeError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the fourth layer, in either place: what can leave leaves, and the layer comes when it is read."""
    made = recipe(**{**CHAIN, "steps": 8})
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    stand_in(monkeypatch, 1)
    real, room, asked, log = CudaStore._slot, Tasks.make_room, count(1), tmp_path / "room"

    def slot(self: CudaStore, group: str, number: int) -> Slot:
        if (group, number) not in self.slots and next(asked) == 4:
            raise said
        return real(self, group, number)

    def make_room(self: Tasks) -> None:
        log.touch()
        room(self)

    if where == "read":
        monkeypatch.setattr(CudaStore, "expect", lambda self, groups: None)
    monkeypatch.setattr(CudaStore, "_slot", slot)
    monkeypatch.setattr(Tasks, "make_room", make_room)
    result = run(made, tmp_path / "run", device="cuda", workers=1)
    assert hashes(result) == plain
    assert log.exists() is (where == "read") and bool(result.get("tasks_run_again")) is (where == "read")
