"""Losses and norms that the device tells late, as a GPU does, change nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from sennit.errors import NanLossError
from sennit.runtime import stepping, tasks
from sennit.runtime.load import load_run
from sennit.runtime.told import Told
from sennit.supernet.hashes import hash_tensors
from tests.gpus import on_gpu
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_chimera import TIED
from tests.runtime.test_engines import violations


class Waited(Told):
    """Is never there before somebody waits."""

    def there(self) -> bool:
        return False


class Late(Told):
    """Is there after a while."""

    def __init__(self, numbers: torch.Tensor) -> None:
        super().__init__(numbers)
        self.due = time.monotonic() + 0.005

    def there(self) -> bool:
        return time.monotonic() > self.due


class Sometimes(Told):
    """Is there when it has been asked for three times."""

    def __init__(self, numbers: torch.Tensor) -> None:
        super().__init__(numbers)
        self.asked = 0

    def there(self) -> bool:
        self.asked += 1
        return self.asked > 3


@pytest.fixture(params=[(Waited, Late), (Sometimes, Sometimes)], ids=["late", "sometimes"])
def late(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    losses, norms = request.param  # a backward waits for its loss; nobody waits for norms, which are looked for
    monkeypatch.setattr(tasks, "Told", losses)
    monkeypatch.setattr(stepping, "Told", norms)


@pytest.mark.parametrize(
    ("changes", "placed"),
    [
        ({}, {"workers": 2}),
        ({}, {"workers": 3, "release": "layer", "chunks": 2}),
        ({"shared": "delayed:3"}, {"workers": 2, "split": True}),
        ({"clip": "layer:0.5"}, {"workers": 1}),
        ({"sync": "bulk:4"}, {"workers": 2}),
        ({"sampler": "sink.py:cycle"}, {"workers": 1}),
    ],
)
@pytest.mark.usefixtures("late")
def test_numbers_that_come_late_change_nothing(changes: Any, placed: Any, tmp_path: Path) -> None:
    made = recipe(**changes)
    plain = run(made, tmp_path / "plain", engine="plain")
    result = run(made, tmp_path / "late", **placed)
    assert hashes(result) == hashes(plain)
    assert result["last_loss"] == plain["last_loss"]
    assert not violations(tmp_path / "late")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.usefixtures("late")
def test_a_loss_that_is_not_finite_trains_nothing_though_it_is_told_late(workers: int, tmp_path: Path) -> None:
    made = recipe(**{**TIED, "micro_batches": 2, "data": "tied.py:Spoilt", "data_args": {"spoilt": 0}})
    kept: list[tuple[str, str, str]] = []
    for name, placed in {"plain": {"engine": "plain"}, "late": {"workers": workers}}.items():
        with pytest.raises(NanLossError, match="5 is nan in micro-batch 0"):
            run(made, tmp_path / name, **placed)  # type: ignore[arg-type]
        state = load_run(tmp_path / name).state
        kept.append((str(state.seq_id), hash_tensors(state.weights), hash_tensors(state.optimizer)))
    assert kept[0] == kept[1]


def test_numbers_on_the_host_are_there_at_once() -> None:
    told = Told(torch.tensor([[1.5, 2.0]]))
    assert told.there() and told.numbers() == [1.5, 2.0]


@on_gpu
def test_numbers_of_a_gpu_arrive() -> None:
    device = torch.device("cuda", 0)
    Told(torch.zeros(3, device=device)).numbers()  # the first one starts CUDA and takes host memory
    torch.cuda._sleep(2_000_000_000)  # pyright: ignore[reportPrivateUsage]
    told = Told(torch.full((3,), 4.0, device=device))
    assert [told.there(), told.numbers(), told.there()] == [False, [4.0, 4.0, 4.0], True]
