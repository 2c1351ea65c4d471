"""Initial values drawn by several processes: the bits of one, or one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

import sennit as sn
from sennit.errors import SpaceError
from sennit.recipe import read_recipe
from sennit.runtime.forked import in_children
from sennit.space import draw_parts
from sennit.space import initialise as module
from sennit.space.draw_parts import parts_of
from sennit.space.initialise import build_on_meta, initialise
from sennit.space.names import unique_tensors
from sennit.space.ready import SPACES
from sennit.supernet.bits import same_bits
from sennit.supernet.hashes import state_hash

T = TypeVar("T")
RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small spaces are worth processes, too."""
    monkeypatch.setattr(module, "MANY", 0)
    monkeypatch.setattr("sennit.supernet.build.cores", lambda: 3)


class Counted:
    """`in_children`, and how many there were."""

    def __init__(self) -> None:
        self.children = 0

    def __call__(self, functions: Sequence[Callable[[], T]], /) -> list[T]:
        self.children += len(functions)
        return in_children(functions)


def drawn(factory: Callable[..., nn.Module], arguments: dict[str, Any], processes: int) -> tuple[nn.Module, int]:
    """A space, and how many processes drew it."""
    space, counted = build_on_meta(factory, arguments), Counted()
    block = draw_parts.Block(space)
    initialise(space, 3, block.allocate, counted, processes)
    block.settle(space)
    return space, counted.children


READY = {
    "nlp.c1": {"d": 16, "vocab": 80, "layers": 2, "max_length": 32},
    "nlp.c3": {"d": 32, "vocab": 80, "layers": 1, "max_length": 32, "tied": True},
    "cv.c2": {"width": 8, "blocks": 3},
    "digits": {},
    "mnist5k": {},
}


@pytest.mark.parametrize("name", READY)
@pytest.mark.parametrize("processes", [2, 7])
def test_spaces_that_come_with_sennit(name: str, processes: int) -> None:
    one = initialise(build_on_meta(SPACES[name], READY[name]), 3)
    many, children = drawn(SPACES[name], READY[name], processes)
    assert children == processes
    assert same_bits(unique_tensors(one), unique_tensors(many))
    strides = [[t.stride() for t in unique_tensors(space).values()] for space in (one, many)]
    assert strides[0] == strides[1]


class Shared(sn.ModelSpace):
    """A tied weight, a module in two places, and a parent that sets what is its child's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight
        self.norm = self.again = nn.BatchNorm1d(8)
        self.attention = nn.MultiheadAttention(8, 2)
        self.blocks = nn.Sequential(*[sn.LayerChoice([nn.Linear(8, 8), nn.Conv1d(8, 8, 3)]) for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x)


def test_what_writes_the_same_tensors_stays_together() -> None:
    many, children = drawn(Shared, {}, 4)
    assert children == 4
    assert same_bits(unique_tensors(initialise(build_on_meta(Shared, {}), 3)), unique_tensors(many))
    assert isinstance(many, Shared) and many.second.weight is many.first.weight
    draws = module._children_first(build_on_meta(Shared, {}))
    place = {path: (k, i) for k, part in enumerate(parts_of(draws, 4)) for i, (path, _) in enumerate(part)}
    assert place["first"][0] == place["second"][0] and place["first"] < place["second"]
    assert place["attention.out_proj"][0] == place["attention"][0] and place["attention.out_proj"] < place["attention"]
    assert "blocks" not in place, "it has nothing of its own to draw"


class Counting(nn.Linear):
    """Knows how many there were before it."""

    made = 0

    def reset_parameters(self) -> None:
        Counting.made += 1
        nn.init.constant_(self.weight, float(Counting.made))
        nn.init.zeros_(self.bias)


class Own(sn.ModelSpace):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(6)])
        if kind == "module":
            self.counting = nn.ModuleList([Counting(8, 8) for _ in range(6)])
        elif kind == "attribute":
            self.layers[0].reset_parameters = lambda: nn.Linear.reset_parameters(self.layers[0])  # type: ignore[arg-type]
        self.kind, self.seen = kind, 0

    def init(self, name: str, module: nn.Module) -> bool:
        return False


class OwnInit(Own):
    def init(self, name: str, module: nn.Module) -> bool:
        self.seen += 1
        if isinstance(module, nn.Linear):
            nn.init.constant_(module.weight, float(self.seen))
            nn.init.zeros_(module.bias)
        return isinstance(module, nn.Linear)


@pytest.mark.parametrize("kind", ["module", "attribute", "init"])
def test_what_may_keep_something_in_python_is_drawn_by_one(kind: str) -> None:
    factory = OwnInit if kind == "init" else Own
    Counting.made = 0
    one = initialise(build_on_meta(factory, {"kind": kind}), 3)
    Counting.made = 0
    many, children = drawn(factory, {"kind": kind}, 4)
    assert children == 0
    assert same_bits(unique_tensors(one), unique_tensors(many))


class Uncovered(sn.ModelSpace):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(6)])
        self.gain = nn.Parameter(torch.ones(3))


def test_what_nobody_draws_is_named() -> None:
    with pytest.raises(SpaceError, match="'gain'"):
        drawn(Uncovered, {}, 4)


def test_small_spaces_and_single_processes_are_drawn_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(SPACES["digits"], {}, 1)[1] == 0
    monkeypatch.setattr(module, "MANY", 1 << 28)
    assert drawn(SPACES["digits"], {}, 4)[1] == 0


def test_a_recipes_model_is_the_same_and_has_memory_of_its_own() -> None:
    recipe = replace(read_recipe(RECIPES / "digits.toml"), shared="frozen")
    one, many = recipe.build_model(), recipe.built.model(in_children)
    assert state_hash(one) == state_hash(many)
    assert [p.requires_grad for p in one.parameters()] == [p.requires_grad for p in many.parameters()]
    parameter = next(many.parameters())
    before = parameter.detach().clone()
    in_children([lambda: parameter.data.zero_()])
    assert same_bits(parameter, before)


def test_memory_is_given_back_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw_parts, "MANY", 1 << 14)
    one = initialise(build_on_meta(SPACES["cv.c2"], READY["cv.c2"]), 3)
    many, _ = drawn(SPACES["cv.c2"], READY["cv.c2"], 3)
    assert same_bits(unique_tensors(one), unique_tensors(many))


def test_children_answer_in_order_and_their_errors_are_raised() -> None:
    assert in_children([lambda i=i: (i, os.getpid()) for i in range(5)])[3][0] == 3
    assert len({pid for _, pid in in_children([lambda i=i: (i, os.getpid()) for i in range(5)])}) == 5

    def bad() -> None:
        raise SpaceError("told")

    with pytest.raises(SpaceError, match="told"):
        in_children([lambda: None, bad, lambda: None])
    with pytest.raises(RuntimeError, match="killed"):
        in_children([lambda: None, lambda: os._exit(3)])
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)  # nobody is left
