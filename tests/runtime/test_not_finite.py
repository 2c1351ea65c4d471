"""What is said of a loss that is not finite can be true, in every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sennit.errors import NanLossError
from sennit.explore.retrain import retrain
from sennit.recipe import Placement, Recipe
from sennit.runtime.request import Request
from sennit.runtime.train import train

NET = """
import math, torch, sennit as sn
from torch import nn

class Net(sn.ModelSpace):
    def __init__(self, start=1.0):
        super().__init__()
        self.start = start
        self.blocks = nn.Sequential(*[sn.LayerChoice([nn.Linear(4, 4), nn.Tanh()]) for _ in range(2)])
        self.head = nn.Linear(4, 3)
    def init(self, name, module):
        if name != "head":
            return False
        nn.init.constant_(module.weight, self.start)
        nn.init.zeros_(module.bias)
        return True
    def forward(self, x):
        return self.head(self.blocks(x))

class Points:
    def __init__(self, spoilt=-1, scale=1.0):
        self.x = torch.arange(256.0).view(64, 4).sin() * scale
        if spoilt >= 0:
            self.x[spoilt, 1] = math.nan
    def __len__(self): return 64
    def __getitem__(self, i): return self.x[i], i % 3
    def batch(self, seq_id, batch_size, seed): return [(seq_id * batch_size + i) % 64 for i in range(batch_size)]

def explodes(output, target):
    "Squares that grow without end under any but a small rate."
    return (output ** 4).sum(), len(target)
"""

ENGINES: dict[str, dict[str, Any]] = {"plain": {"engine": "plain"}, "pipeline": {"placement": Placement(workers=2)}}


def made(folder: Path, **changes: Any) -> Recipe:
    (folder / "net.py").write_text(NET)
    given = {"space": "net.py:Net", "data": "net.py:Points", "batch_size": 8, "steps": 8, "micro_batches": 2}
    return Recipe(**{**given, "base": str(folder), **changes})


def said(recipe: Recipe, out: Path, engine: str) -> str:
    with pytest.raises(NanLossError) as caught:
        train(Request(recipe=recipe, out=out, **ENGINES[engine]), lambda progress: None)
    return str(caught.value)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seq_id", [0, 3])
def test_a_batch_that_holds_such_numbers(engine: str, seq_id: int, tmp_path: Path) -> None:
    message = said(made(tmp_path, data_args={"spoilt": 8 * seq_id + 5}), tmp_path / "run", engine)
    assert f"the loss of subnet {seq_id} is nan in micro-batch 1" in message
    assert "1 of 16 in x" in message and "mend the data set" in message
    assert "Lower lr" not in message and "initial" not in message


OVERFLOWS: dict[str, Any] = {"space_args": {"start": 3e38}, "data_args": {"scale": 1e5}}
"""The head's sums are too large for a float32, whatever the blocks do."""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("sync", ["csp", "bulk:4"])
def test_before_any_step_lr_is_not_blamed(engine: str, sync: str, tmp_path: Path) -> None:
    message = said(made(tmp_path, **OVERFLOWS, sync=sync), tmp_path / "run", engine)
    assert "No optimizer step has changed anything yet" in message and "initial values" in message
    assert "largest number of x: 1e+05" in message
    assert "Lower lr" not in message and "precision" not in message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ("initial values", "lr and clip have no part")),
        ({"precision": "bf16"}, ("at precision = 'bf16'",)),
        ({"lr": 0.0}, ("No optimizer step has changed anything yet",)),
    ],
)
def test_what_is_named_fits_the_recipe(changes: dict[str, Any], words: tuple[str, ...], tmp_path: Path) -> None:
    message = said(made(tmp_path, **OVERFLOWS, **changes), tmp_path / "run", "plain")
    assert all(word in message for word in words), message


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("clip", "advised"), [("none", 'set clip = "global:1.0"'), ("layer:1e9", "lower clip = 'layer:1e9'")]
)
def test_after_steps_that_were_too_large(engine: str, clip: str, advised: str, tmp_path: Path) -> None:
    changes = {"loss_name": "net.py:explodes", "lr": 1e9, "clip": clip, "steps": 40, "space_args": {"start": 3.0}}
    message = said(made(tmp_path, **changes), tmp_path / "run", engine)
    assert "subnet 0" not in message
    assert f"Lower lr (1e+09 in the step before), or {advised}" in message


def test_a_network_that_is_trained_alone(tmp_path: Path) -> None:
    arch = {"blocks.0": 0, "blocks.1": 1}
    with pytest.raises(NanLossError, match=r"the loss of step 0 is nan\. Its batch holds .*1 of 16 in x"):
        retrain(made(tmp_path, data_args={"spoilt": 0}), arch, steps=1, seed=0, split="train")
    with pytest.raises(NanLossError, match=r"the loss of step 0 is .* No optimizer step has changed anything yet"):
        retrain(made(tmp_path, **OVERFLOWS), arch, steps=1, seed=0, split="train")
