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


class Base(sn.ModelSpace):
    """Without forward."""

    def __init__(self) -> None:
        super().__init__()
        self.choice = sn.LayerChoice([nn.Linear(3, 3), nn.Identity()])


class One(Base):
    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:  # here
        return self.choice(x) * scale


class Two(Base):
    def forward(self, x: Tensor, *, mask: Tensor) -> Tensor:  # here
        return self.choice(x) + mask


@pytest.mark.parametrize(
    ("kind", "x", "takes", "given", "reason"),
    [
        (One, (X, X, X), "(x, scale=1.0)", "a tuple of 3", "too many positional arguments"),
        (One, [X, X, X], "(x, scale=1.0)", "a tuple of 3", "too many positional arguments"),
        (One, (), "(x, scale=1.0)", "a tuple of 0", "missing a required argument: 'x'"),
        (One, {"x": X, "mask": X}, "(x, scale=1.0)", "a dict with 'x', 'mask'", "unexpected keyword argument 'mask'"),
        (One, {"input": X}, "(x, scale=1.0)", "a dict with 'input'", "missing a required argument: 'x'"),
        (Two, X, "(x, *, mask)", "one tensor", "'mask'"),
        (Two, (X, X), "(x, *, mask)", "a tuple of 2", "too many positional arguments"),
    ],
)
def test_a_forward_that_does_not_take_what_the_data_gives(
    kind: Any, x: Any, takes: str, given: str, reason: str
) -> None:
    with pytest.raises(SpaceError) as caught:
        kind()(x, arch={"choice": 0})
    said = str(caught.value)
    takes = takes.replace("x, mask", "x, *, mask") if "*" in said else takes
    assert said.startswith(
        f"{line_of(kind.forward)}: forward of {kind.__name__} takes {takes}, but the data gives {given}"
    )
    assert (
        reason in said and "a tuple or list is splatted, a dict\nbecomes keywords" in said and "docs/files.md" in said
    )


def test_a_dict_whose_keys_are_no_words() -> None:
    with pytest.raises(SpaceError, match=r"a dict with keys 3: a dict becomes keywords .* must be strings"):
        One()({3: X}, arch={"choice": 0})


class Block(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.choice(x)


class Outer(sn.ModelSpace):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.bare = Base()
        self.join = sn.InputChoice(2)
        self.chain = sn.Repeat(nn.ReLU(), (0, 1))

    def forward(self, how: str, x: Tensor) -> Tensor:
        if how == "block":
            x = self.block(x, 2)  # block
        if how == "none":
            x = self.bare(x)  # none
        if how == "join":
            x = self.join(x, x)  # join
        if how == "chain":
            x = self.chain(input=x)  # chain
        return x


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("block", "forward of Block takes (x), but it is called with 2 arguments: too many positional"),
        ("none", "Base has no forward, so there is nothing to run"),
        ("join", "forward of InputChoice takes (inputs), but it is called with 2 arguments"),
        ("chain", "forward of Repeat takes (x), but it is called with keywords 'input'"),
    ],
)
def test_a_call_in_a_forward_of_what_holds_choices(how: str, said: str) -> None:
    arch = {"block.choice": 0, "bare.choice": 0, "join": 0, "chain": 0}
    with pytest.raises(SpaceError) as caught:
        Outer()(how, X, arch=arch)
    assert str(caught.value).startswith(f"{line_of(Outer, f'# {how}')}: {said}")
    assert ("as one list: self.pick([a, b, c])" in str(caught.value)) == (how == "join")


def test_a_space_without_forward() -> None:
    with pytest.raises(
        SpaceError, match=r"Base has no forward, .*the data gives one tensor.*\n    def forward\(self"
    ) as c:
        Base()(X, arch={"choice": 0})
    assert str(c.value).startswith(f"{__file__}:{inspect.getsourcelines(Base.__init__)[1]}: ")


def test_a_space_without_anything_has_its_file() -> None:
    class Empty(sn.ModelSpace): ...

    with pytest.raises(SpaceError) as told:
        Empty()(X)
    assert str(told.value).startswith(f"{__file__}: Empty has no forward")


@pytest.mark.parametrize("result", [None, 4, [], {"loss": None}])
def test_a_forward_that_returns_no_tensor(result: Any) -> None:
    class Forgets(Base):
        def forward(self, x: Tensor) -> Any:  # here
            self.choice(x)
            return result

    with pytest.raises(SpaceError) as caught:
        Forgets()(X, arch={"choice": 1})
    said = str(caught.value)
    assert said.startswith(f"{line_of(Forgets)}: forward of Forgets returned {result!r}, in which there is no tensor")
    assert "return" in said and "{'choice': 1}" in said


def test_an_error_of_the_forward_itself_stays() -> None:
    """Its line is told by commands."""

    class Raises(Base):
        def forward(self, x: Tensor) -> Tensor:
            return self.choice(x) + len(3)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match=r"has no len"):
        Raises()(X, arch={"choice": 0})
