"""Values that a constructor gives to layers which draw their own: refused, as they were lost without a word."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import sennit as sn
from sennit.errors import SpaceError
from sennit.space.initialise import build_on_meta, initialise

SAVED = {"weight": torch.ones(2, 3), "bias": torch.ones(2)}


def zeros(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.weight)


def in_place(net: Net) -> None:
    with torch.no_grad():
        net.head.weight *= 0.1


def one(net: Net) -> None:
    with torch.no_grad():
        net.head.weight[0] = 1.0


def filled(net: Net) -> None:
    with torch.no_grad():
        net.head.weight.fill_(0.5)


LOST: dict[str, Callable[[Net], object]] = {
    "init": lambda net: nn.init.xavier_normal_(net.head.weight),
    "by name": lambda net: nn.init.kaiming_uniform_(tensor=net.head.weight),
    "apply": lambda net: net.apply(zeros),
    "data": lambda net: net.head.weight.data.zero_(),
    "filled": filled, "operator": in_place, "item": one,
    "state": lambda net: net.head.load_state_dict(SAVED),
    "copied": lambda net: net.head.weight.data.copy_(SAVED["weight"]),
    "buffer": lambda net: net.norm.running_var.fill_(2.0),  # type: ignore[union-attr]
}  # fmt: skip

FINE: dict[str, Callable[[Net], object]] = {
    "nothing": lambda net: None,
    "frozen": lambda net: net.head.weight.requires_grad_(False),
    "drawn again": lambda net: net.head.reset_parameters(),
    "layers": lambda net: setattr(net, "more", nn.ModuleList([
        nn.LSTM(3, 2), nn.MultiheadAttention(4, 2), nn.Embedding(5, 3, padding_idx=0), nn.Conv2d(1, 2, 3), nn.PReLU(),
        nn.GroupNorm(1, 2), nn.TransformerEncoderLayer(4, 2, 4), nn.BatchNorm2d(3), nn.Bilinear(2, 3, 4),
    ])),
}  # fmt: skip


class Own(nn.Module):
    """Draws in its own way, in its constructor as well, by whatever name."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3))
        self.register_buffer("places", torch.zeros(4))
        self._ones()

    def reset_parameters(self) -> None:
        self._ones()

    def _ones(self) -> None:
        nn.init.ones_(self.weight)
        self.places[:] = torch.arange(4.0, device=self.places.device)  # type: ignore[index]


class Net(sn.ModelSpace):
    def __init__(self, then: Callable[[Net], object]) -> None:
        super().__init__()
        self.own, self.norm, self.head = Own(), nn.BatchNorm1d(3), nn.Linear(3, 2)
        then(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x) * self.own.weight)


class Hooked(Net):
    def init(self, name: str, module: nn.Module) -> bool:
        if name not in ("head", "norm"):
            return False
        module.reset_parameters()  # type: ignore[operator]
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.weight)
        return True


@pytest.mark.parametrize("how", LOST)
@pytest.mark.filterwarnings("ignore:for .* copying from a non-meta parameter")
def test_a_value_that_would_be_lost_is_refused(how: str) -> None:
    space = build_on_meta(Net, {"then": LOST[how]})
    with pytest.raises(SpaceError) as caught:
        initialise(space, 0)
    said = str(caught.value)
    name = "norm.running_var" if how == "buffer" else "head.weight"
    assert said.startswith(f"{__file__}:") and f"'{name}'" in said and "def init(self, name, module)" in said


@pytest.mark.parametrize("how", FINE)
def test_what_loses_nothing_is_built(how: str) -> None:
    space = initialise(build_on_meta(Net, {"then": FINE[how]}), 0)
    assert torch.equal(space.own.weight, torch.ones(3))  # type: ignore[arg-type]
    assert torch.equal(space.own.places, torch.arange(4.0))  # type: ignore[arg-type]


@pytest.mark.parametrize("how", LOST)
@pytest.mark.filterwarnings("ignore:for .* copying from a non-meta parameter")
def test_who_gives_it_in_init_may_give_it_in_the_constructor_too(how: str) -> None:
    """The same class is used outside of sennit."""
    space = initialise(build_on_meta(Hooked, {"then": LOST[how]}), 0)
    assert not space.head.weight.any()  # type: ignore[union-attr]
