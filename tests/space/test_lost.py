"""What a constructor gives to a torch layer is refused, unless it is there in the end."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sennit as sn
from sennit.errors import SpaceError
from sennit.space.constructing import Constructing
from sennit.space.initialise import build_on_meta, initialise


class Net(sn.ModelSpace):
    """With a layer that a function does something to at the end of the constructor."""

    def __init__(self, does: Callable[[Any], object] | None = None) -> None:
        super().__init__()
        self.stem, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.block = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.head = nn.Linear(3, 2)
        if does is not None:
            does(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(self.norm(self.stem(x))))


class Own(nn.Linear):
    """Its constructor, or that of what it is in, says how it begins."""

    def __init__(self) -> None:
        super().__init__(3, 3)
        nn.init.zeros_(self.bias)


def made(does: Callable[[Any], object] | None, kind: type[Net] = Net) -> Any:
    return initialise(build_on_meta(kind, {"does": does}), 0)


def apply_to_all(net: Net) -> None:
    def first(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)

    net.apply(first)


def row(net: Net) -> None:
    with torch.no_grad():
        net.head.weight[0] = 0.5


def copied(net: Net) -> None:
    with torch.no_grad():
        net.head.weight.copy_(torch.ones(2, 3))


def halved(net: Net) -> None:
    with torch.no_grad():
        net.head.weight.mul_(0.5)


def replaced(net: Net) -> None:
    net.head.weight.data = torch.ones(2, 3)


def loaded(net: Net) -> None:
    warnings.simplefilter("ignore")  # torch's own: a no-op
    net.head.load_state_dict({"weight": torch.ones(2, 3, device="cpu"), "bias": torch.ones(2, device="cpu")})


def own(net: Net) -> None:
    net.block[0] = Own()


LOST: dict[str, tuple[Callable[[Any], object], str]] = {
    "nn.init": (lambda net: nn.init.zeros_(net.head.weight), "'head.weight'"),
    "by name": (lambda net: nn.init.constant_(tensor=net.head.bias, val=1.5), "'head.bias'"),
    "a method": (lambda net: net.head.weight.detach().normal_(), "'head.weight'"),
    "data": (lambda net: net.head.weight.data.fill_(0.0), "'head.weight'"),
    "data is set": (replaced, "'head.weight'"),
    "a part": (row, "'head.weight'"),
    "copied": (copied, "'head.weight'"),
    "in place": (halved, "'head.weight'"),
    "loaded": (loaded, "'head.weight'"),
    "apply": (apply_to_all, "'stem.weight'"),
    "a buffer": (lambda net: net.norm.running_mean.fill_(2.0), "'norm.running_mean'"),
    "a class of its own": (own, "'block.0.bias'"),
    "another constant": (lambda net: nn.init.zeros_(net.norm.weight), "'norm.weight'"),
}


@pytest.mark.parametrize("case", LOST)
def test_a_value_that_would_be_lost_is_refused_by_name_and_place(case: str) -> None:
    does, name = LOST[case]
    with warnings.catch_warnings(), pytest.raises(SpaceError, match="would be lost") as told:
        made(does)
    assert name in str(told.value) and f"{__file__}:" in str(told.value)


class Resets(nn.Module):
    """Writes what is below."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        nn.init.ones_(self.inner.weight)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.inner.weight)


class Inits(Net):
    def init(self, name: str, module: Any) -> bool:
        if name == "head":
            nn.init.zeros_(module.weight)
            nn.init.zeros_(module.bias)
            return True
        if name == "block":  # what is in it has been drawn
            nn.init.ones_(module[0].weight)
        return False


def resets(net: Net) -> None:
    net.block[0] = Resets()


def norms(net: Net) -> None:
    nn.init.constant_(net.norm.weight, 1)
    nn.init.zeros_(net.norm.bias)
    net.norm.running_var.fill_(1.0)


KEPT: dict[str, tuple[type[Net], Callable[[Any], object]]] = {
    "by init": (Inits, lambda net: nn.init.zeros_(net.head.weight)),
    "by init of what it is in": (Inits, lambda net: nn.init.ones_(net.block[0].weight)),
    "by a reset of a user's": (Net, resets),
    "the same constants": (Net, norms),
    "a reset": (Net, lambda net: net.head.reset_parameters()),
    "no write": (Net, lambda net: net.head.weight.requires_grad_(False)),
    "another tensor": (Net, lambda net: torch.empty(3).normal_()),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_is_there_in_the_end_is_not_refused(case: str) -> None:
    kind, does = KEPT[case]
    made(does, kind)


def test_another_process_that_draws_does_not_hide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sennit.space.initialise.MANY", 1)

    def at_once(functions: Any) -> Any:
        return [function() for function in functions]

    for does, lost in ((lambda net: nn.init.zeros_(net.head.weight), True), (norms, False)):
        space = build_on_meta(Net, {"does": does})
        if lost:
            with pytest.raises(SpaceError, match=r"'head\.weight'"):
                initialise(space, 0, at_once=at_once, processes=2)
        else:
            initialise(space, 0, at_once=at_once, processes=2)


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "attention": lambda: nn.MultiheadAttention(8, 2),
    "transformer": lambda: nn.Transformer(8, 2, 1, 1, 8, batch_first=True),
    "lstm": lambda: nn.LSTM(3, 4, 2, proj_size=2), "gru": lambda: nn.GRUCell(3, 4),
    "embedding": lambda: nn.Embedding(5, 3, padding_idx=0), "bag": lambda: nn.EmbeddingBag(5, 3, padding_idx=0),
    "norm": lambda: nn.BatchNorm3d(3), "group": lambda: nn.GroupNorm(2, 4), "instance": lambda: nn.InstanceNorm1d(3),
    "prelu": lambda: nn.PReLU(3), "bilinear": lambda: nn.Bilinear(2, 3, 4), "conv": lambda: nn.ConvTranspose2d(2, 3, 2),
    "rms": lambda: nn.RMSNorm(3), "adaptive": lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3, 6]),
}  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS)
def test_constructors_of_torch_give_nothing(layer: str) -> None:
    with torch.device("meta"), Constructing() as writes:
        LAYERS[layer]()
    assert not writes.given


# -- what `init` writes


class Tied(sn.ModelSpace):
    """The head is the embedding's, or the other way round."""

    def __init__(self, names: list[str], first: str = "embed") -> None:
        super().__init__()
        self.names = names
        layers = {"embed": nn.Embedding(4, 3), "head": nn.Linear(3, 4)}
        for name in (first, *(other for other in layers if other != first)):
            self.add_module(name, layers[name])
        self.head.weight = self.embed.weight

    def init(self, name: str, module: Any) -> bool:
        if name not in self.names:
            return False
        for parameter in module.parameters():
            nn.init.constant_(parameter, 0.25)
        return True

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embed(x))


def test_what_init_gives_to_a_tied_parameter_is_not_drawn_over() -> None:
    with pytest.raises(SpaceError, match=r"'head\.weight' is one of them, tied: Linear has drawn it anew") as told:
        initialise(build_on_meta(Tied, {"names": ["embed"]}), 0)
    assert "if name in ('embed', 'head'):" in str(told.value)
    both = initialise(build_on_meta(Tied, {"names": ["embed", "head"]}), 0)
    last = initialise(build_on_meta(Tied, {"names": ["embed"], "first": "head"}), 0)
    for space in (both, last):
        assert bool((space.embed.weight == 0.25).all())  # type: ignore[operator,union-attr]


class Forgets(Net):
    def init(self, name: str, module: Any) -> Any:
        if name == "head":
            nn.init.zeros_(module.weight)


class Extra(nn.Linear):
    """Has more than torch's reset writes."""

    def __init__(self) -> None:
        super().__init__(3, 3)
        self.gain = nn.Parameter(torch.empty(3))


class Gains(Net):
    def __init__(self, does: None = None) -> None:
        super().__init__(does)
        self.stem = Extra()

    def init(self, name: str, module: Any) -> bool:
        if name == "stem":
            nn.init.ones_(module.gain)
        return False


def test_init_that_writes_and_does_not_say_so_is_refused_if_that_is_lost() -> None:
    with pytest.raises(SpaceError, match=r"writes 'head\.weight', and returns None for 'head'"):
        made(None, Forgets)
    assert bool((made(None, Gains).stem.gain == 1).all())
