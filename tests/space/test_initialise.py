"""Initial weights: keyed by path, so that nothing else decides them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sennit as sn
from sennit.errors import SpaceError
from sennit.space.initialise import build_on_meta, initialise
from sennit.space.names import unique_tensors


class Net(sn.ModelSpace):
    def __init__(self, blocks: int = 2, width: int = 4) -> None:
        super().__init__()
        candidates = lambda: [nn.Linear(width, width), nn.MultiheadAttention(width, 2), nn.BatchNorm1d(width)]  # noqa: E731
        self.blocks = nn.Sequential(*[sn.LayerChoice(candidates()) for _ in range(blocks)])

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x)


def made(seed: int, **arguments: int) -> dict[str, Tensor]:
    return unique_tensors(initialise(build_on_meta(Net, arguments), seed))


def test_same_seed_same_bits_whatever_was_drawn_before() -> None:
    one = made(3)
    torch.manual_seed(99)
    random.seed(99)
    np.random.seed(99)
    torch.rand(7)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # type: ignore[index]
    two = made(3)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
    assert np.array_equal(np.random.get_state()[1], states[2])  # type: ignore[index]
    other = made(4)
    assert not torch.equal(one["blocks.0.0.weight"], other["blocks.0.0.weight"])


def test_a_module_keeps_its_weights_when_others_are_added() -> None:
    small, large = made(3, blocks=2), made(3, blocks=5)
    assert all(torch.equal(tensor, large[name]) for name, tensor in small.items())
    assert not torch.equal(large["blocks.0.0.weight"], large["blocks.1.0.weight"])


def test_memory_may_be_the_callers() -> None:
    given: dict[str, Tensor] = {}

    def allocate(name: str, tensor: Tensor) -> Tensor:
        given[name] = torch.empty(tensor.shape, dtype=tensor.dtype)
        return given[name]

    space = initialise(build_on_meta(Net, {}), 3, allocate)
    plain = made(3)
    assert given.keys() == plain.keys()
    for name, tensor in unique_tensors(space).items():
        assert tensor.data_ptr() == given[name].data_ptr() and torch.equal(tensor, plain[name])


class Own(nn.Module):
    def __init__(self, covered: bool) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(3))
        self.register_buffer("mask", torch.ones(3))
        if covered:
            self.reset_parameters = self.fill

    def fill(self) -> None:
        nn.init.ones_(self.gain)
        self.mask.fill_(1.0)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gain * self.mask


class WithOwn(sn.ModelSpace):
    def __init__(self, covered: bool = True) -> None:
        super().__init__()
        self.own = Own(covered)
        self.choice = sn.LayerChoice([nn.Linear(3, 3), nn.Identity()])

    def forward(self, x: Tensor) -> Tensor:
        return self.choice(self.own(x))


def test_a_parameter_that_nothing_covers_is_named_with_the_way_out() -> None:
    with pytest.raises(SpaceError, match=r"parameter 'own.gain' of Own at 'own' has no initial value") as caught:
        initialise(build_on_meta(WithOwn, {"covered": False}), 0)
    assert "def reset_parameters(self): ...  # such as nn.init.ones_(self.gain)" in str(caught.value)
    assert "def init(self, name, module)" in str(caught.value)
    assert torch.equal(unique_tensors(initialise(build_on_meta(WithOwn, {}), 0))["own.gain"], torch.ones(3))


def _another_parameter(module: Own) -> None:
    module.gain = nn.Parameter(torch.full((3,), 2.0))


def _another_buffer(module: Own) -> None:
    module.mask = torch.full((3,), 2.0)


def _other_data(module: Own) -> None:
    module.gain.data = module.gain.data * 2


def _one_more(module: Own) -> None:
    module.more = nn.Parameter(torch.ones(3))


def _one_less(module: Own) -> None:
    module.gain = None  # type: ignore[assignment]


REPLACES = [
    (_another_parameter, "gain"), (_another_buffer, "mask"), (_other_data, "gain"), (_one_more, "more"),
    (_one_less, "gain"),
]  # fmt: skip


@pytest.mark.parametrize(("replace", "name"), REPLACES, ids=lambda what: getattr(what, "__name__", what))
def test_a_tensor_that_is_replaced_while_it_is_drawn_is_refused_by_name(replace: Any, name: str) -> None:
    """The plain loop trained what stood there instead, and workers the memory that was given."""

    class Init(WithOwn):
        def init(self, name: str, module: nn.Module) -> bool:
            if isinstance(module, Own):
                module.fill()
                replace(module)
                return True
            return False

    with pytest.raises(SpaceError, match=f"'own.{name}' of Own at 'own' was replaced") as caught:
        initialise(build_on_meta(Init, {}), 0)
    assert f"self.{name}.copy_(...)" in str(caught.value)


def test_the_space_may_initialise_itself() -> None:
    class Init(WithOwn):
        def init(self, name: str, module: nn.Module) -> bool:
            if isinstance(module, Own):
                nn.init.normal_(module.gain)
                module.mask.fill_(0.5)
                return True
            return False

    one = unique_tensors(initialise(build_on_meta(Init, {"covered": False}), 1))
    two = unique_tensors(initialise(build_on_meta(Init, {"covered": False}), 1))
    assert torch.equal(one["own.gain"], two["own.gain"]) and one["own.mask"].tolist() == [0.5] * 3


def test_ties_survive() -> None:
    class Tie(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(3, 3)
            self.b = nn.Linear(3, 3)
            self.b.weight = self.a.weight

    space = initialise(build_on_meta(Tie, {}), 0)
    assert space.a.weight is space.b.weight


def test_constructors_that_cannot_be_run_without_data() -> None:
    class Rates(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.rates = [r.item() for r in torch.linspace(0, 0.1, 3)]

    with pytest.raises(
        SpaceError, match=r"could not be built on device 'meta'(?s:.*)Use Python numbers(?s:.*)linspace"
    ):
        build_on_meta(Rates, {})
    with pytest.raises(SpaceError, match=r"does not take these space_args \{'depth': 3\}"):
        build_on_meta(Net, {"depth": 3})
    with pytest.raises(SpaceError, match=r"must name a ModelSpace class"):
        build_on_meta(dict, {})  # type: ignore[arg-type]


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_a_hook_on_a_parameter_is_refused_by_name(register: str) -> None:
    """It was lost without a word: what trains are other tensors than those of the constructor."""

    def hooked() -> nn.Module:
        space = nn.Sequential(nn.Linear(2, 2))
        getattr(space[0].weight, register)(lambda it: None)
        return space

    with pytest.raises(SpaceError, match=r"'0.weight' has a hook on its gradient"):
        build_on_meta(hooked, {})


class Doubled(nn.Linear):
    def __init__(self) -> None:
        super().__init__(3, 3)
        self.twice = self.weight * 2


COMPUTES = [
    lambda: nn.utils.weight_norm(nn.Linear(3, 3)), lambda: nn.utils.spectral_norm(nn.Linear(3, 3)), Doubled
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("make", COMPUTES)
def test_what_is_computed_from_parameters_in_a_constructor_is_refused_by_name(make: Any) -> None:
    """Ended in a traceback of `copy.deepcopy`."""

    class Computes(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.layer = make()

    with pytest.raises(SpaceError, match=r"of (Linear|Doubled) at 'layer' is a tensor computed"):
        build_on_meta(Computes, {})
