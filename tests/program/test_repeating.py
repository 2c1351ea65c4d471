"""A forward that does not repeat itself is told so, with what it draws from; shapes and modes are not blamed for it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sennit as sn
from sennit.errors import SpaceError
from sennit.supernet.generators import seeded

PYTHON, NUMPY, OWN = (
    "It draws from Python's `random`.",
    "from numpy's global generator",
    "keeps a counter or a generator",
)


class Apply(nn.Module):
    def forward(self, x: Tensor, by: Any) -> Tensor:
        return by(x) if callable(by) else x * by


class Drawn(nn.Module):
    """Draws inside of a step."""

    def forward(self, x: Tensor) -> Tensor:
        return x * random.random() * float(np.random.rand())


class Net(sn.ModelSpace):
    """`body` is what each test puts in, with ten choices at hand."""

    def __init__(self, body: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(sn.LayerChoice([nn.Linear(8, 8), nn.Identity()]) for _ in range(10))
        self.apply_to, self.drawn = Apply(), Drawn()
        self.own, self.count = random.Random(1), itertools.count()
        self.__dict__["body"] = body

    def forward(self, x: Tensor) -> Any:
        return self.__dict__["body"](self, x)


def record(body: Callable[[Any, Tensor], Any]) -> None:
    with seeded(0):
        Net(body).program({f"blocks.{i}": 0 for i in range(10)}, torch.zeros(3, 8))


def drops_layers(net: Any, x: Tensor) -> Tensor:
    for block in net.blocks:
        if random.random() < 0.5:
            x = block(x)
    return x


def shuffles(net: Any, x: Tensor) -> Tensor:
    for block in random.sample(list(net.blocks), 10):
        x = block(x)
    return x


def permutes(net: Any, x: Tensor) -> Tensor:
    return net.blocks[0](x)[:, np.random.permutation(8).tolist()]


@pytest.mark.parametrize(
    ("body", "source"),
    [
        (lambda net, x: net.blocks[0](x) * random.random(), PYTHON),
        (lambda net, x: net.blocks[0](x) * float(np.random.rand()), NUMPY),
        (lambda net, x: torch.roll(net.blocks[0](x), random.randint(0, 10**9), 1), PYTHON),
        (lambda net, x: net.apply_to(net.blocks[0](x), random.random()), PYTHON),
        (lambda net, x: net.blocks[0](x) * random.random() * float(np.random.rand()), "Python's `random` and numpy's"),
        (drops_layers, PYTHON),
        (shuffles, PYTHON),
        (permutes, NUMPY),
        (lambda net, x: net.drawn(net.blocks[0](x)) * float(np.random.rand()), NUMPY),
        (lambda net, x: net.blocks[0](x) * net.own.random(), OWN),
        (lambda net, x: net.blocks[0](x) * next(net.count), OWN),
    ],
)
def test_what_forward_draws_from_is_named(body: Callable[[Any, Tensor], Any], source: str) -> None:
    """It was said to differ "for two batches of different shape"."""
    with pytest.raises(SpaceError, match="forward does not repeat itself") as caught:
        record(body)
    said = str(caught.value)
    assert source in said and "torch.rand(1" in said and f"{__file__}:" in said
    assert "shape" not in said and "eval mode" not in said
    assert len(said.splitlines()) < 15


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (lambda net, x: net.blocks[0](x).view(int(x.shape[0]), -1), "two batches of different shape"),
        (lambda net, x: net.drawn(x).view(int(x.shape[0]), -1), "two batches of different shape"),
        (lambda net, x: net.blocks[0](x) * (2 if net.training else 3), "in training and in eval mode"),
        (lambda net, x: net.apply_to(net.blocks[0](x), lambda t: t * 2), "makes anew whenever it runs"),
    ],
)
def test_other_reasons_keep_their_words(body: Callable[[Any, Tensor], Any], said: str) -> None:
    with pytest.raises(SpaceError, match=said):
        record(body)


@pytest.mark.parametrize(
    "body",
    [
        lambda net, x: net.blocks[0](x) * torch.rand(1, device=x.device),
        lambda net, x: net.drawn(net.blocks[0](x)),
    ],
)
def test_what_the_message_advises_is_recorded(body: Callable[[Any, Tensor], Any]) -> None:
    record(body)
