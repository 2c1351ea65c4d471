"""Ordinary mistakes in a first space: refused with the line, the rule and what to write instead."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sennit as sn
from sennit.errors import ArchError, SpaceError

X = torch.zeros(4, 3)


def line_of(function: Any, mark: str = "# here") -> str:
    """file:line of the line of `function` that is marked so."""
    lines, first = inspect.getsourcelines(function)
    (marked,) = [first + i for i, line in enumerate(lines) if mark in line]
    return f"{__file__}:{marked}"


class Hidden(nn.Module):
    """A part with its choices where torch does not look for modules."""

    def __init__(self, kept: Any) -> None:
        super().__init__()
        self.__dict__["kept"] = kept

    def forward(self, x: Tensor) -> Tensor:
        kept = self.__dict__["kept"]
        choice = kept() if callable(kept) and not isinstance(kept, nn.Module) else kept
        choice = choice["a"] if isinstance(choice, dict) else choice[0]
        return choice([x, x]) if isinstance(choice, sn.InputChoice) else choice(x)  # here


CHOICES = {
    "LayerChoice": lambda label=None: sn.LayerChoice([nn.Identity(), nn.ReLU()], label=label),
    "InputChoice": lambda label=None: sn.InputChoice(2, label=label),
    "Repeat": lambda label=None: sn.Repeat(nn.ReLU(), (1, 2), label=label),
}


class Around(sn.ModelSpace):
    """A part of one's own, before or behind a choice that is as it should be."""

    def __init__(self, part: nn.Module, inlined: bool) -> None:
        super().__init__()
        self.known = sn.LayerChoice([nn.Linear(3, 3), nn.ReLU()])
        self.part = part
        if inlined:
            part.also = sn.LayerChoice([nn.ReLU()])

    def forward(self, x: Tensor) -> Tensor:
        h = self.known(x)
        return self.part(self.part.also(h) if hasattr(self.part, "also") else h)


@pytest.mark.parametrize("kind", CHOICES)
@pytest.mark.parametrize("kept", ["list", "tuple", "dict", "forward"])
@pytest.mark.parametrize("label", [None, "mine", "known"])
@pytest.mark.parametrize("inlined", [False, True], ids=["unit", "inlined"])
def test_a_choice_that_no_module_holds(kind: str, kept: str, label: str | None, inlined: bool) -> None:
    def make() -> nn.Module:
        return CHOICES[kind](label)

    held: Any = {"list": lambda: [make()], "tuple": lambda: (make(),), "dict": lambda: {"a": make()}}.get(kept)
    space = Around(Hidden((lambda: [make()]) if held is None else held()), inlined)
    with pytest.raises(SpaceError) as caught:
        space.program({"known": 0, **({"part.also": 0} if inlined else {})}, X)
    said = str(caught.value)
    assert said.startswith(f"{line_of(Hidden)}: this {kind} is no part of the space")
    assert "right:  self.blocks = nn.ModuleList([" in said and "nn.ModuleDict" in said and "in __init__" in said


def test_a_choice_in_a_list_is_refused_without_a_choice_elsewhere() -> None:
    class Net(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = [sn.LayerChoice([nn.Linear(3, 3), nn.Identity()])]

        def forward(self, x: Tensor) -> Tensor:
            return self.blocks[0](x)  # here

    with pytest.raises(SpaceError, match=r"this LayerChoice is no part of the space") as caught:
        Net()(X, arch={})
    assert str(caught.value).startswith(line_of(Net))


def test_a_choice_of_a_candidate_that_is_not_chosen() -> None:
    class Net(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.outer = sn.LayerChoice([nn.Identity(), nn.Sequential(sn.LayerChoice([nn.ReLU(), nn.Tanh()]))])

        def forward(self, x: Tensor) -> Tensor:
            return self.outer(x) + getattr(self.outer, "1")(x)  # here

    with pytest.raises(ArchError, match=r"choice 'outer.1.0' was called, and the arch has no value for it") as caught:
        Net().program({"outer": 0}, X)
    assert str(caught.value).startswith(line_of(Net))
