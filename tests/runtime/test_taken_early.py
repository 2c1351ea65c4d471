"""Tensors that are on their way to a GPU: taken when there, or early, with the device to wait for them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from sennit.errors import NanLossError
from sennit.memory.store import HostStore
from sennit.recipe import CheckpointRule
from sennit.runtime.load import load_run
from sennit.supernet.hashes import hash_tensors
from tests.runtime.host_gpu import stand_in
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_chimera import TIED
from tests.runtime.test_engines import violations
from tests.runtime.test_replicas import NORMLESS

PLACED: dict[str, dict[str, Any]] = {
    "two": {"workers": 2},
    "three, chunks, by layer": {"workers": 3, "chunks": 2, "release": "layer"},
    "four, split": {"workers": 4, "split": True},
    "replicas": {"workers": 4, "replicas": 2},
}


@pytest.mark.parametrize("case", PLACED)
@pytest.mark.parametrize("changes", [{}, {"shared": "delayed:3"}, TIED], ids=["strict", "delayed", "tied"])
def test_workers_that_take_messages_early_give_the_bits_of_the_plain_loop(
    case: str, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is ever there before it is waited for, so everything is taken early."""
    made = recipe(**{"steps": 8, "micro_batches": 4, **changes})
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    stand_in(monkeypatch, 4)
    result = run(made, tmp_path / "run", device="cuda", **PLACED[case])
    assert hashes(result) == plain and not violations(tmp_path / "run")


def test_a_resumed_run_steps_what_waited_where_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker 0 stepped it, on its own device, and nobody else ever saw that version."""
    changes: dict[str, Any] = {**NORMLESS, "shared": "delayed:4"}
    plain = hashes(run(recipe(**changes), tmp_path / "plain", engine="plain"))
    stand_in(monkeypatch, 4)
    run(recipe(**changes), tmp_path / "run", steps=5, device="cuda", workers=2)
    assert hashes(run(recipe(**changes), tmp_path / "run", resume=True, device="cuda", workers=2)) == plain
    assert not violations(tmp_path / "run")


def test_a_worker_that_is_held_up_after_it_has_written_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others have written since is not taken for its own."""
    made = recipe(steps=4, micro_batches=4)
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    stand_in(monkeypatch, 4)
    real = HostStore.move

    def move(self: HostStore, group: str, word: tuple[int, int, int]) -> None:
        real(self, group, word)
        time.sleep(0.05)

    monkeypatch.setattr(HostStore, "move", move)
    assert hashes(run(made, tmp_path / "run", device="cuda", workers=3, replicas=3)) == plain


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_loss_that_is_not_finite_right_after_a_cut(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statistics are as they were at the cut: workers come to rest, and bring them, before they are taken back."""
    made = recipe(
        **{**TIED, "micro_batches": 2, "data": "tied.py:Spoilt", "data_args": {"spoilt": 0}},
        checkpoint=CheckpointRule(every=5),
    )
    stand_in(monkeypatch, 4)
    kept: list[tuple[str, str, str]] = []
    for name, placed in {"plain": {"engine": "plain"}, "two": {"workers": 2, "device": device}}.items():
        with pytest.raises(NanLossError, match="5 is nan in micro-batch 0; the state before"):
            run(made, tmp_path / name, **placed)  # type: ignore[arg-type]
        state = load_run(tmp_path / name).state
        kept.append((str(state.seq_id), hash_tensors(state.weights), hash_tensors(state.optimizer)))
    assert kept[0] == kept[1]
