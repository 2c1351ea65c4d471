"""New versions that go from GPU to GPU: the bits of the plain loop, and whoever gets none reads the host's."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from sennit.memory.cpu import CpuStore
from sennit.memory.device import Copy, HostDevice
from sennit.memory.eviction import LeastRecent
from sennit.memory.layout import BOUNDARY
from sennit.memory.parcel import numbers
from sennit.memory.slots import SlotStore
from sennit.memory.stepped import Made, Stepped
from sennit.memory.store import HostStore
from sennit.runtime import gpu
from sennit.runtime.slot_use import SlotUse
from sennit.runtime.subnet import Subnet
from sennit.schedule.order import Task
from tests.memory.late import LateDevice
from tests.memory.test_slots import NeverDevice
from tests.memory.test_store import filled, store
from tests.runtime.host_gpu import stand_in
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_chimera import TIED
from tests.runtime.test_engines import violations
from tests.runtime.test_replicas import NORMLESS

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "two": (NORMLESS, {"workers": 2, "replicas": 2}),
    "two by two, chunks": (NORMLESS, {"workers": 4, "replicas": 2, "chunks": 2}),
    "by layer, split": (NORMLESS, {"workers": 2, "replicas": 2, "release": "layer", "split": True}),
    "batch norm, tied": (TIED, {"workers": 2, "replicas": 2}),
    "bulk": ({**NORMLESS, "sync": "bulk:2"}, {"workers": 2, "replicas": 2}),
    "delayed": ({**NORMLESS, "shared": "delayed:2"}, {"workers": 2, "replicas": 2}),
    "clip by layer": ({**NORMLESS, "clip": "layer:0.1"}, {"workers": 2, "replicas": 2, "chunks": 3}),
    "no clip": ({**NORMLESS, "clip": "none"}, {"workers": 2, "replicas": 2}),
}


class Slow(LateDevice):
    """Bytes of a step are long on their way to the host."""

    def done(self, copy: Copy) -> bool:
        self.asked[copy] += 1
        return not copy or (self.asked[copy] > 40 and super().done(copy))


def of_case(case: str) -> tuple[Any, dict[str, Any]]:
    changes, placed = CASES[case]
    return recipe(**{**changes, "micro_batches": 4, "steps": 12}), {**placed, "device": "cuda"}


@pytest.mark.parametrize("case", CASES)
def test_what_is_passed_on_has_the_bits_of_the_plain_loop(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, placed = of_case(case)
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    stand_in(monkeypatch, 4)
    result = run(made, tmp_path / "run", **placed)
    assert hashes(result) == plain and not violations(tmp_path / "run")
    assert result["slots"]["passed"] > 0
    host = HostStore(
        made.built.recordings.skeleton, made.built.groups, made.built.always[0], made.sharing, made.optimizer_name,
        made.optimizer_arguments,
    )  # fmt: skip
    assert result["slots"]["written_bytes"] <= sum(host.coming_and_going.values()), "more than once, at the end"


def test_what_is_passed_on_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, placed = of_case("two")
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    real = SlotStore.take

    def spoilt(self: SlotStore, made: Iterable[Made]) -> None:
        real(self, [(group, version, torch.zeros_like(flat)) for group, version, flat in made])

    stand_in(monkeypatch, 4)
    monkeypatch.setattr(SlotStore, "take", spoilt)
    assert hashes(run(made, tmp_path / "run", **placed)) != plain


@pytest.mark.parametrize("why", ["has no room", "gives up its slots"])
def test_whoever_has_no_place_reads_the_host(why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, placed = of_case("two")
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    stand_in(monkeypatch, 4)
    real = SlotStore.take

    def no_room(self: SlotStore, made: Iterable[Made]) -> None:
        held = list(made)
        self.relieve()
        with monkeypatch.context() as patched:
            patched.setattr(self.cache, "leaving", lambda size: None)
            real(self, held)

    def gives_up(self: SlotStore, made: Iterable[Made]) -> None:
        real(self, made)
        self.relieve()

    monkeypatch.setattr(SlotStore, "take", no_room if why == "has no room" else gives_up)
    result = run(made, tmp_path / "run", **placed)
    assert hashes(result) == plain and not violations(tmp_path / "run")
    assert (result["slots"]["passed"] == 0) is (why == "has no room")


def test_what_comes_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for a layer's first version: even if the host has it long before."""
    made, placed = of_case("two")
    stand_in(monkeypatch, 4)
    real = SlotStore.take

    def late(self: SlotStore, made: Iterable[Made]) -> None:
        time.sleep(0.02)
        real(self, made)

    monkeypatch.setattr(SlotStore, "take", late)
    result = run(made, tmp_path / "run", **placed)
    groups = sum(made.built.groups.by_name[name].kind == "parameters" for name in made.built.groups.by_name)
    assert result["slots"]["fetches"] <= 2 * groups


def test_it_goes_on_from_where_it_ended_on_other_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions that were passed on are in the checkpoint, with the state that stayed where it was."""
    made, placed = of_case("two by two, chunks")
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    stand_in(monkeypatch, 4)
    run(made, tmp_path / "run", **{**placed, "steps": 5})
    assert hashes(run(made, tmp_path / "run", resume=True, device="cuda", workers=2, replicas=2)) == plain


def test_versions_that_come_late_or_to_no_place_are_left_out() -> None:
    host = filled(store())
    mine = SlotStore(
        CpuStore(host), NeverDevice(), frozenset(["a"]), host.spare() + host.size("a"), LeastRecent(),
        Stepped(elsewhere=frozenset(["a", "norm"])),
    )  # fmt: skip
    bytes_of = host.slots["a"][0].nbytes - BOUNDARY
    flat = {n: numbers(torch.full((bytes_of,), n, dtype=torch.uint8)) for n in range(4)}

    def there() -> tuple[int, int]:
        slot = mine.slots["a", 0]
        return slot.version or 0, int(slot.flat[BOUNDARY])

    mine.take([("a", 2, flat[2])])
    assert there() == (2, 2) and mine.holds("a", 2) and mine.seen("a", 2) == 2
    mine.take([("a", 1, flat[1])])
    assert there() == (2, 2)
    mine.pin("a", 3)
    mine.take([("a", 3, flat[3])])
    assert there() == (2, 2), "a live graph reads it"
    mine.unpin(["a"], 3)
    mine.take([("a", 3, flat[3])])
    assert there() == (3, 3) and mine.residents.tally.passed == 2 and not mine.residents.tally.fetches
    full = SlotStore(CpuStore(host), NeverDevice(), frozenset(["a"]), host.size("norm"), LeastRecent())
    full.acquire("norm", -1)
    full.take([("a", 1, flat[1])])
    assert full.here("norm") and not full.here("a")


def test_what_is_given_up_before_the_host_has_it_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forward is ready once its version has come; a full device may take the slot away before the forward begins."""
    made, placed = of_case("two")
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    stand_in(monkeypatch, 4)
    monkeypatch.setattr(gpu, "CudaDevice", lambda device, pinned: Slow())
    real = SlotUse.begin

    def begin(self: SlotUse, task: Task, subnet: Subnet) -> None:
        self.store.relieve()  # as the task before this one, that found the device full
        real(self, task, subnet)

    monkeypatch.setattr(SlotUse, "begin", begin)
    result = run(made, tmp_path / "run", **placed)
    assert hashes(result) == plain and not violations(tmp_path / "run")
    assert result["slots"]["passed"] > 0


class Marking(HostDevice):
    """Counts its marks."""

    def __init__(self) -> None:
        super().__init__()
        self.marks = 0

    def mark(self) -> Copy:
        self.marks += 1
        return self.marks


def test_the_memory_of_a_slot_is_given_to_others_only_when_it_has_been_passed_on() -> None:
    device = Marking()
    host = filled(store())
    mine = SlotStore(
        CpuStore(host), device, frozenset(["a"]), host.spare() + host.size("a"), LeastRecent(),
        Stepped(here=frozenset(["a"])),
    )  # fmt: skip
    read: list[int] = []
    mine.pass_on(lambda made: read.append(device.marks), 0)
    mine.acquire("a", -1)
    mine.step("a", {name: torch.ones_like(leaf) for name, leaf in mine.slots["a", 0].leaves.items()}, 0.1, 0)
    assert read and all(mark > read[0] for mark in mine.slots["a", 0].used), "what is marked comes after"


def test_versions_that_came_to_no_place_may_be_told_of_in_any_order() -> None:
    host = filled(store())
    full = SlotStore(
        CpuStore(host), NeverDevice(), frozenset(["a"]), host.size("norm"), LeastRecent(),
        Stepped(elsewhere=frozenset(["a"])),
    )  # fmt: skip
    full.pass_on(lambda made: None, 0)
    full.acquire("norm", -1)
    flat = numbers(torch.zeros(host.slots["a"][0].nbytes - BOUNDARY, dtype=torch.uint8))
    full.take([("a", 3, flat)])
    full.take([("a", 1, flat)])
    host.publish("a", 3)
    assert full.holds("a", 3), "it will not come once more"
