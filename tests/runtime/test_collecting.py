"""What training leaves behind needs no collector, which may then come by seldom."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pytest

from sennit.runtime import collecting
from sennit.runtime.collecting import NONE_FOUND, OFTEN, SELDOM, YOUNG, collecting_seldom
from sennit.runtime.entry import Entry
from sennit.runtime.plain import PlainEngine
from tests.runtime.cycles import LOG, NBYTES
from tests.runtime.host_gpu import stand_in
from tests.runtime.runs import recipe, run
from tests.runtime.test_chimera import TIED
from tests.runtime.test_replicas import NORMLESS
from tests.runtime.test_sync_rules import CHAIN

WINDOW = 8
"""Subnets after which is looked."""

PLACED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "causal": ({}, {"workers": 2}),
    "tied, split, by layer": (TIED, {"workers": 2, "split": True, "release": "layer"}),
    "delayed": ({"shared": "delayed:3"}, {"workers": 2}),
    "replicas on GPUs": ({**NORMLESS, "clip": "layer:0.5"}, {"workers": 2, "replicas": 2, "device": "cuda"}),
    "a budget": ({}, {"workers": 2, "budget": 1.0}),
}


@pytest.mark.parametrize("case", PLACED)
def test_a_worker_leaves_no_cycles(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the second and the third look: some things are made once."""
    changes, placed = PLACED[case]
    stand_in(monkeypatch, 2)
    real = Entry.take_in

    def take_in(self: Entry, y: int) -> None:
        if y and not y % WINDOW:
            before = gc.get_threshold()[0]
            with (tmp_path / f"found.{self.rank}").open("a") as file:
                file.write(json.dumps([before, gc.collect()]) + "\n")
            gc.set_threshold(10**9)  # nobody else looks
        real(self, y)

    monkeypatch.setattr(Entry, "take_in", take_in)
    run(recipe(**{"micro_batches": 2, **changes, "steps": 3 * WINDOW + 1}), tmp_path / "run", **placed)
    for rank in range(2):
        found = [json.loads(line) for line in (tmp_path / f"found.{rank}").read_text().splitlines()]
        assert found[0][0] == YOUNG and len(found) == 3
        assert found[2][1] == 0, "objects that only the collector finds"


def test_the_plain_loop_gives_back_how_often_python_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, inside = gc.get_threshold(), list[int]()
    real = PlainEngine.run

    def watched(self: PlainEngine, task: Any) -> None:
        inside.append(gc.get_threshold()[0])
        real(self, task)

    monkeypatch.setattr(PlainEngine, "run", watched)
    run(recipe(steps=3), tmp_path / "run", engine="plain")
    assert inside == [YOUNG] * 3 and gc.get_threshold() == before


def cycle() -> None:
    """Garbage."""
    held: list[object] = []
    held.append(held)


def test_what_is_left_is_looked_at_once_more_seldom_unless_there_is_garbage() -> None:
    before, callbacks, seen = gc.get_threshold(), [*gc.callbacks], list[int]()
    gc.collect()
    with collecting_seldom():
        for found in [False] * (NONE_FOUND + 1) + [True] + [False] * NONE_FOUND:
            if found:
                cycle()
            gc.collect(0)
            assert gc.get_threshold()[0] == YOUNG
            seen.append(gc.get_threshold()[1])
    assert seen == [OFTEN] * (NONE_FOUND - 1) + [SELDOM] * 2 + [OFTEN] * NONE_FOUND + [SELDOM]
    assert gc.get_threshold() == before and gc.callbacks == callbacks


def test_garbage_that_is_found_seldom_is_found_when_there_must_be_room() -> None:
    """`Tasks.make_room` looks at all that is not old."""
    with collecting_seldom():
        for _ in range(NONE_FOUND):
            gc.collect(0)
        held: list[object] = []
        held.append(held)
        gc.collect(0)  # it is left
        del held
        gc.collect(0)
        assert gc.collect(1) >= 1


@pytest.mark.parametrize("placed", [{"engine": "plain"}, {"workers": 2, "split": True}], ids=["plain", "pipeline"])
def test_cycles_that_hold_memory_are_found_while_it_is_little(
    placed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some 500 are left, of 1 MiB each; what was in use at a look is found by a later one."""
    monkeypatch.setattr(collecting, "GROWN", 16 << 20)
    monkeypatch.setattr(collecting, "PART", 1 << 20)
    monkeypatch.setenv(LOG, str(tmp_path / "most"))
    made = recipe(**{**CHAIN, "space": "cycles.py:Net", "steps": 90})
    run(made, tmp_path / "run", **placed)
    most = [int(path.read_text()) for path in tmp_path.glob("most.*")]
    assert most and max(most) * NBYTES < 100 << 20


def test_what_a_process_holds_for_itself_is_told() -> None:
    before = collecting.private_bytes()
    block = bytearray(b"1") * (64 << 20)
    assert collecting.private_bytes() - before >= len(block) // 2
