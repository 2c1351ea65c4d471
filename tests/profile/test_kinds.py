"""Steps that may cost differently are of different kinds, and only those."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from sennit.profile.kinds import kind_of
from sennit.program.step import Step


class Heads(nn.Module):
    """A setting that no `repr` shows."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads, self.linear = heads, nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


STEP = Step(0, "a", "module", "a", (), {}, (0,), (1,), None, params=("w",))
LIKE = {"w": torch.empty(4, 4, device="meta"), "v": torch.empty(4, 8, device="meta")}


def kind(module: nn.Module | None, step: Step = STEP, x: object = None) -> str:
    return kind_of(step, module, LIKE.__getitem__, {0: torch.zeros(2, 4) if x is None else x})


def test_the_same_twice() -> None:
    assert kind(Heads(2)) == kind(Heads(2), replace(STEP, name="b", target="b"))


def test_other_settings_shapes_and_types() -> None:
    kinds = [
        kind(Heads(2)),
        kind(Heads(4)),
        kind(nn.Linear(4, 4)),
        kind(nn.Sequential(nn.Linear(4, 4))),
        kind(nn.Dropout(0.1), replace(STEP, params=())),
        kind(nn.Dropout(0.2), replace(STEP, params=())),
        kind(Heads(2), replace(STEP, params=("v",))),
        kind(Heads(2), replace(STEP, no_grad=True)),
        kind(Heads(2), x=torch.zeros(3, 4)),
        kind(Heads(2), x=torch.zeros(2, 4, dtype=torch.bfloat16)),
        kind(None, replace(STEP, kind="call", target=torch.add)),
        kind(None, replace(STEP, kind="call", target=torch.mul)),
        kind(None, replace(STEP, kind="call", target=torch.mul, kwargs={"out": 1})),
    ]
    assert len(set(kinds)) == len(kinds)
