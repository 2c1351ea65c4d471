"""What is put into single modules either works in every engine, or is refused by name in all of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sennit as sn
from sennit.errors import SpaceError
from sennit.program.copied import copied
from sennit.space.initialise import build_on_meta, initialise


class Scaled(nn.Module):
    """Whose forward asks a method and a function."""

    activation = staticmethod(torch.relu)

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.own: Any = None

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)

    def scale(self, x: Tensor) -> Tensor:
        return x * self.weight * (self.own or getattr(self, "gain", 1.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.scale(x))


class Net(sn.ModelSpace):
    def __init__(self, change: Callable[[Any], None] = lambda net: None) -> None:
        super().__init__()
        self.choice = sn.LayerChoice([nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh())])
        self.scaled = Scaled()
        self.head = nn.Linear(4, 2)
        change(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.scaled(self.choice(x)))


def louder(module: Any, name: str = "forward") -> None:
    old = getattr(module, name)
    setattr(module, name, lambda x: old(x) * 1.1)


def by_default(module: Any) -> None:
    module.forward = lambda x, old=module.forward: old(x) * 1.1


def by_partial(module: Any) -> None:
    def scaled(old: Any, by: float, x: Tensor) -> Tensor:
        return old(x) * by

    module.forward = partial(lambda x, more: scaled(old, 1.1, x), more=1)
    old = type(module).forward.__get__(module)


def by_list(module: Any) -> None:
    held = [module]
    module.forward = lambda x: type(held[0]).forward(held[0], x)


def twice(module: Any) -> None:
    louder(module)
    louder(module)


REPLACED: list[tuple[Callable[[Any], None], str]] = [
    (lambda net: louder(net.head), "'forward' of Linear at 'head'"),
    (lambda net: twice(net.head), "'forward' of Linear at 'head'"),
    (lambda net: by_default(net.head), "'forward' of Linear at 'head'"),
    (lambda net: by_partial(net.head), "'forward' of Linear at 'head'"),
    (lambda net: by_list(net.head), "'forward' of Linear at 'head'"),
    (lambda net: louder(net.choice), "'forward' of LayerChoice at 'choice'"),
    (lambda net: louder(getattr(net.choice, "1")[0]), "'forward' of Linear at 'choice.1.0'"),
    (lambda net: louder(net.scaled, "scale"), "'scale' of Scaled at 'scaled'"),
    (lambda net: louder(net), "'forward' of the space itself"),
]


@pytest.mark.parametrize(("change", "named"), REPLACED)
def test_a_method_that_keeps_hold_of_a_module_is_refused_by_name(change: Callable[[Any], None], named: str) -> None:
    """It trained in a loop without sennit; here a copy called what it had been copied from, a tensor without memory."""
    with pytest.raises(SpaceError) as caught:
        build_on_meta(Net, {"change": change})
    said = str(caught.value)
    assert said.startswith(named) and "test_grafted.py:" in said and "Derive a class, or wrap" in said
    assert len(said.splitlines()) < 10


def rebound(module: Any) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias) * 1.1

    module.forward = MethodType(forward, module)


def other_activation(net: Any) -> None:
    net.scaled.activation = F.gelu


def own_function(net: Any) -> None:
    by = 2.0
    net.scaled.own = lambda: by
    net.scaled.scale = MethodType(lambda self, x: x * self.weight * self.own(), net.scaled)


def with_partial(net: Any) -> None:
    net.head.forward = partial(_linear, net.head)


def _linear(module: Any, x: Tensor) -> Tensor:
    return F.linear(x, module.weight, module.bias) * 1.1


@pytest.mark.parametrize("change", [lambda net: rebound(net.head), other_activation, own_function, with_partial])
def test_what_is_copied_with_its_module_works(change: Callable[[Any], None]) -> None:
    space = initialise(build_on_meta(Net, {"change": change}), 0)
    copy, x = copied(space), torch.randn(3, 4)
    arch = {"choice": 0}
    assert torch.equal(space(x, arch=arch), copy(x, arch=arch))
    with torch.no_grad():
        for parameter in space.parameters():
            parameter.zero_()
    assert not space(x, arch=arch).any() and copy(x, arch=arch).any()


# -- while initial values are drawn


class Initialised(Net):
    def __init__(self, late: Callable[[Any, nn.Module], None]) -> None:
        super().__init__()
        self.__dict__["late"] = late

    def init(self, name: str, module: nn.Module) -> bool:
        if name == "head":
            self.__dict__["late"](self, module)
        return False


def adds(net: Any, head: Any) -> None:
    net.scaled.gain = 2.0


def counts(net: Any, head: Any) -> None:
    net.drawn_so_far = getattr(net, "drawn_so_far", 0) + 1
    head.reset_parameters = lambda: [nn.init.constant_(p, net.drawn_so_far) for p in (head.weight, head.bias)]


LATE: list[tuple[Callable[[Any, Any], Any], str]] = [
    (lambda net, head: louder(head), "'forward' of Linear at 'head' came"),
    (lambda net, head: setattr(net.scaled, "own", 2.0), "'own' of Scaled at 'scaled' changed"),
    (adds, "'gain' of Scaled at 'scaled' came"),
    (lambda net, head: delattr(net.scaled, "own"), "'own' of Scaled at 'scaled' went"),
    (lambda net, head: head.register_forward_hook(lambda *a: None), "the hooks of Linear at 'head' changed"),
    (lambda net, head: head.register_forward_pre_hook(lambda *a: None), "the hooks of Linear at 'head' changed"),
    (lambda net, head: net.scaled.eval(), "'training' of Scaled at 'scaled' changed"),
    (lambda net, head: net.add_module("more", nn.Tanh()), "the whole of Tanh at 'more' came"),
]


@pytest.mark.parametrize(("late", "named"), LATE)
def test_what_changes_beside_tensors_is_refused_by_name(late: Callable[[Any, Any], Any], named: str) -> None:
    """The plain loop trained with it, and workers, who run the constructor alone, without."""
    space = build_on_meta(Initialised, {"late": late})
    with pytest.raises(SpaceError) as caught:
        initialise(space, 0)
    assert str(caught.value).startswith(named) and "Set it in __init__" in str(caught.value)


def test_what_only_the_drawing_of_values_knows_may_change() -> None:
    space = initialise(build_on_meta(Initialised, {"late": counts}), 0)
    assert (space.get_submodule("head").weight == 1).all()


def test_a_reset_may_set_again_what_the_constructor_has_set() -> None:
    class Bounded(nn.Linear):
        def reset_parameters(self) -> None:
            self.bound = [1 / math.sqrt(self.in_features), {"of": self.weight.shape[0]}]
            super().reset_parameters()

    class Plain(Net):
        def __init__(self) -> None:
            super().__init__()
            self.head = Bounded(4, 2)

        def init(self, name: str, module: nn.Module) -> bool:
            self.structure  # noqa: B018 - looks at itself
            return False

    initialise(build_on_meta(Plain, {}), 0)
