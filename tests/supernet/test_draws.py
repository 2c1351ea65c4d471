"""`draws_with_torch`: what may be left unseeded, and that nobody notices."""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sennit as sn
from sennit.recipe import Recipe, read_recipe
from sennit.supernet import context
from sennit.supernet.draws import draws_with_torch


class Own(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * random.random()


def test_code_that_is_known() -> None:
    assert draws_with_torch(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Dropout(0.1)))
    assert draws_with_torch(nn.TransformerEncoderLayer(4, 1, activation=F.relu))


def test_code_that_nobody_knows() -> None:
    hooked = nn.Linear(2, 2)
    hooked.register_forward_hook(lambda module, args, out: out * random.random())
    drawn = nn.TransformerEncoderLayer(4, 1, activation=lambda x: x * random.random())  # type: ignore[arg-type]
    replaced = nn.Linear(2, 2)
    replaced.forward = lambda x: x * random.random()  # type: ignore[method-assign]
    for module in (Own(), nn.Sequential(nn.ReLU(), Own()), hooked, drawn, replaced):
        assert not draws_with_torch(module)


@functools.wraps(F.relu)
def wrapping(x: Tensor) -> Tensor:
    """Says that it is of torch."""
    return F.relu(x) * random.random()


@torch.no_grad()
def wrapped(x: Tensor) -> Tensor:
    """torch's code around code of nobody knows whom."""
    return x * random.random()


@functools.wraps(nn.Linear, updated=())
class Posing(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * random.random()


class Named(nn.Linear):
    forward = Posing.forward


Named.__module__ = "torch.nn.modules.linear"


def put_in(code: Any) -> nn.Module:
    """A module of torch that runs it."""
    module = nn.TransformerEncoderLayer(4, 1)
    module.__dict__["activation"] = code
    return module


CODE = {
    "wraps a function of torch": wrapping,
    "wrapped by torch": wrapped,
    "in parts": functools.partial(F.leaky_relu, negative_slope=0.1),
    "method of a module": nn.Sequential(nn.ReLU(), Own()).forward,
    "module that is no child": nn.Sequential(Own()),
    "class that poses": Posing(4, 4),
    "class that says another module": Named(4, 4),
}


@pytest.mark.parametrize("name", CODE)
def test_code_that_says_that_it_is_known(name: str) -> None:
    """Was believed, and left unseeded: two runs drew other numbers."""
    assert not draws_with_torch(put_in(CODE[name]))


@pytest.mark.parametrize(
    "code",
    [F.relu, F.max_pool2d, torch.tanh, nn.ReLU(), nn.Sequential(nn.ReLU()).forward],
    ids=["function", "dispatched", "built in", "module", "method"],
)
def test_code_of_torch_in_a_module_of_torch(code: Any) -> None:
    assert draws_with_torch(put_in(code))


def test_every_layer_of_torch_is_known() -> None:
    """But those that hang hooks into themselves, and two that torch has deprecated with code from elsewhere."""
    found = [made for name in dir(nn) if isinstance(cls := getattr(nn, name), type) and (made := of(cls)) is not None]
    unknown = {type(module).__name__ for module in found if not draws_with_torch(module)}
    assert len(found) > 60 and all(name.startswith("Lazy") for name in unknown - {"Container", "NLLLoss2d"}), unknown


def of(cls: type) -> nn.Module | None:
    """A module of the class, if it is one and small numbers make it."""
    if not issubclass(cls, nn.Module) or cls.__module__.endswith("parallel"):
        return None
    for given in ((), (4,), (4, 4), (2, 2, 1)):
        try:
            return cls(*given)
        except Exception:
            continue
    return None


@pytest.mark.parametrize("name", ["digits", "mnist5k", "nlp.c3-small", "cv.c3-small"])
def test_no_candidate_of_a_ready_space_draws_otherwise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe: Recipe = read_recipe(f"recipes/{name}.toml")
    model = recipe.build_model()
    x, _ = recipe.built.micro_batches(recipe.built.batches[0])[0]
    seen: list[bool] = []

    def enter(self: context.StepContext, step_key: int, *, torch_only: bool = False) -> None:
        seen.append(torch_only)

    monkeypatch.setattr(context.StepContext, "enter", enter)
    before = random.getstate(), repr(np.random.get_state())
    for program in recipe.built.covering:
        with context.step_context(context.StepContext.of(0, 0, 0, "fp32", next(model.parameters()).device)):
            model(x, arch=program.arch)
    assert all(seen) and len(seen) > len(recipe.built.covering)
    assert before == (random.getstate(), repr(np.random.get_state()))


def test_a_step_of_unknown_code_is_seeded_whatever_was_drawn_before() -> None:
    space = Drawing()
    drawn: list[float] = []
    for n in (0, 3):
        for _ in range(n):
            random.random()
        with context.step_context(context.StepContext.of(0, 0, 0, "fp32", next(space.parameters()).device)):
            drawn.append(float(space(space.line.weight.detach()).detach().sum()))
    assert drawn[0] == drawn[1]


class Drawing(sn.ModelSpace):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(3, 3)
        self.own = Own()

    def forward(self, x: Tensor) -> Tensor:
        return self.own(self.line(x))
