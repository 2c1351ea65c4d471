"""Two modules are the same only if nothing that their forwards look at differs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sennit.program.sameness import Unknown, same_module


class Layer(nn.Module):
    def __init__(self, act: Callable[[Tensor], Tensor] = F.relu, **settings: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.act = act
        for name, value in settings.items():
            setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.linear(x))


def scaled(by: float) -> Callable[[Tensor], Tensor]:
    return lambda x: x * by


SAME: list[Callable[[], nn.Module]] = [
    Layer,
    lambda: Layer(F.gelu, names=["a", {"b": (1, 2.0)}], kind=torch.float32),
    lambda: Layer(partial(F.gelu, approximate="tanh")),
    lambda: nn.Sequential(nn.Conv2d(2, 2, 3, padding="same"), nn.BatchNorm2d(2), nn.Dropout(0.1)),
    lambda: nn.TransformerEncoderLayer(8, 2, batch_first=True),
]


@pytest.mark.parametrize("make", SAME)
def test_two_of_a_kind_are_the_same(make: Callable[[], nn.Module]) -> None:
    assert same_module(make()) == same_module(make())


DIFFERENT: list[nn.Module] = [
    Layer(), Layer(F.gelu), Layer(scaled(1.0)), Layer(scaled(1.0)), Layer(scale=1), Layer(scale=1.0), Layer(scale=True),
    Layer(scale=[1]), Layer(scale=(1,)), Layer(scale=0.0), Layer(scale=-0.0), Layer(_hidden=1),
    Layer(partial(F.gelu, approximate="tanh")), Layer(partial(F.gelu, approximate="none")),
    nn.Dropout(0.1), nn.Dropout(0.2), nn.Sequential(nn.Tanh()), nn.Sequential(nn.ReLU()), nn.Linear(4, 4, bias=False),
    nn.Linear(4, 4),
]  # fmt: skip


def test_every_difference_counts() -> None:
    found = [same_module(module) for module in DIFFERENT]
    assert len(set(found)) == len(found)


def with_hook() -> nn.Module:
    module = Layer()
    module.linear.register_forward_hook(lambda *given: None)
    return module


@pytest.mark.parametrize(
    "module", [Layer(loose=torch.ones(1)), Layer(others=[nn.Linear(2, 2)]), Layer(what=object()), with_hook()]
)
def test_what_cannot_be_compared_says_so(module: nn.Module) -> None:
    with pytest.raises(Unknown):
        same_module(module)
