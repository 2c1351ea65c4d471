"""`may_draw`: what is left without a seed, that it draws nothing, and that nobody notices."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_sync_rules import CHAIN
from tests.supernet.test_draws import Own, of
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

import sennit as sn
from sennit.program import run as run_module
from sennit.program import unit
from sennit.recipe import Recipe, read_recipe
from sennit.space.ready.cv.catalogue import Cell, Mean
from sennit.supernet import context, drawless
from sennit.supernet.drawless import may_draw
from sennit.supernet.draws import draws_with_torch


def states() -> tuple[Any, ...]:
    """Of all generators of a CPU."""
    return torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())


SHAPES = [(2, 4), (2, 4, 4), (2, 4, 4, 4), (2, 4, 4, 4, 4), (4, 2), (4, 4, 4)]


def ran(module: nn.Module) -> bool:
    """Whether some input suits it; it is called in both modes."""
    inputs: list[tuple[Tensor, ...]] = [(torch.zeros(shape),) for shape in SHAPES]
    inputs += [(torch.zeros(4, 4), torch.zeros(4, 4)), (torch.zeros(3, dtype=torch.int64),)]
    found = False
    for given in inputs:
        for mode in (True, False):
            try:
                module.train(mode)(*given)
            except (RuntimeError, ValueError, TypeError, IndexError, AssertionError):
                continue
            found = True
    return found


MADE: dict[type[nn.Module], Callable[[], nn.Module]] = {
    nn.Sequential: lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU()),
    nn.Bilinear: lambda: nn.Bilinear(4, 4, 3),
    nn.GroupNorm: lambda: nn.GroupNorm(2, 4),
    nn.LayerNorm: lambda: nn.LayerNorm(4),
    nn.Unflatten: lambda: nn.Unflatten(1, (2, 2)),
    nn.Upsample: lambda: nn.Upsample(scale_factor=2),
    nn.PixelShuffle: lambda: nn.PixelShuffle(2),
    nn.PixelUnshuffle: lambda: nn.PixelUnshuffle(2),
    nn.ZeroPad1d: lambda: nn.ZeroPad1d(1),
    nn.ZeroPad2d: lambda: nn.ZeroPad2d(1),
    nn.ZeroPad3d: lambda: nn.ZeroPad3d(1),
    **{cls: (lambda cls=cls: cls(2)) for cls in (
        nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d,
        nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d,
    )},
    **{cls: (lambda cls=cls: cls(4, 4, 2)) for cls in (
        nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
    )},
}  # fmt: skip
OF_TORCH = sorted(
    (cls for cls in drawless._DRAWLESS if cls.__module__.startswith("torch.")), key=lambda cls: cls.__name__
)


@pytest.mark.filterwarnings("ignore")  # of torch, about shapes
@pytest.mark.parametrize("cls", OF_TORCH, ids=lambda cls: cls.__name__)
def test_a_class_of_torch_that_is_listed_draws_nothing(cls: type[nn.Module]) -> None:
    made = MADE.get(cls)
    module = made() if made is not None else of(cls)
    assert module is not None and not may_draw(module)
    before = states()
    assert ran(module) or cls in (nn.ModuleList, nn.ModuleDict)
    assert states() == before


@pytest.mark.filterwarnings("ignore")
def test_every_layer_of_torch_that_draws_may_draw() -> None:
    modules = [made for name in dir(nn) if isinstance(cls := getattr(nn, name), type) and (made := of(cls)) is not None]
    modules += [nn.Dropout(0.0), nn.RReLU(), nn.TransformerEncoderLayer(4, 1), nn.MultiheadAttention(4, 1, 0.5)]
    drew = set()
    for module in modules:
        name, may, before = type(module).__name__, may_draw(module), states()  # a lazy one becomes another
        ran(module)
        if states() != before:
            drew.add(name)
            assert may, module
    assert {"Dropout", "Dropout2d", "AlphaDropout", "RReLU", "LazyLinear"} <= drew


@pytest.mark.parametrize("name", ["digits", "mnist5k", "nlp.c3-small", "cv.c3-small"])
def test_a_candidate_of_a_ready_space_that_is_left_unseeded_draws_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Recipe = read_recipe(f"recipes/{name}.toml")
    model = made.build_model()
    x, _ = made.built.micro_batches(made.built.batches[0])[0]
    call, kinds = run_module._call, {True: 0, False: 0}

    def watched(function: Any, *rest: Any) -> Any:
        may = not isinstance(function, nn.Module) or may_draw(function)
        before = () if may else states()
        result = call(function, *rest)
        kinds[may] += 1
        assert may or states() == before, function
        return result

    monkeypatch.setattr(run_module, "_call", watched)
    for program in made.built.covering:
        with context.step_context(context.StepContext.of(0, 0, 0, "fp32", next(model.parameters()).device)):
            model(x, arch=program.arch)
    assert kinds[True] and kinds[False]


class Likewise(Cell):
    def forward(self, x: Tensor, older: Tensor) -> Tensor:
        return F.dropout(super().forward(x, older), 0.5)


class Noisy(nn.Parameter):
    """Runs code of its own wherever it goes."""


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    module[0].register_forward_pre_hook(lambda module, args: None)
    return module


def with_function(name: str, code: Any) -> nn.Module:
    module = nn.Linear(4, 4)
    module.__dict__[name] = code
    return module


def with_parameter() -> nn.Module:
    module = nn.Linear(4, 4)
    module.weight = Noisy(torch.zeros(4, 4))
    return module


NOT_PROVEN: dict[str, Callable[[], nn.Module]] = {
    "of a user": Own,
    "derived from one of ours": lambda: Likewise(nn.ReLU()),
    "derived from one of torch": lambda: type("Line", (nn.Linear,), {})(4, 4),
    "inside": lambda: Cell(nn.Sequential(nn.ReLU(), nn.Dropout(0.0))),
    "far inside": lambda: nn.Sequential(Cell(nn.Sequential(nn.ReLU(), nn.ModuleList([Own()])))),
    "hooked": hooked,
    "another forward": lambda: with_function("forward", F.dropout),
    "a function that may be called": lambda: with_function("activation", F.dropout),
    "a module that is no child": lambda: with_function("held", nn.Dropout()),
    "a parameter of a user's class": with_parameter,
    "evaluating": lambda: nn.Dropout(0.5).eval(),
}


@pytest.mark.parametrize("name", NOT_PROVEN)
def test_what_is_not_proven_is_seeded(name: str) -> None:
    assert may_draw(NOT_PROVEN[name]())
    assert not may_draw(Mean()) and not may_draw(Cell(nn.Sequential(nn.ReLU(), nn.Conv2d(3, 3, 1))))


class Quiet(sn.ModelSpace):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Dropout(0.5)
        self.layers = nn.Sequential(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), nn.Linear(3, 3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def noise(module: nn.Module, args: Any, out: Tensor) -> Tensor:
    return out + torch.rand_like(out) + random.random()


@contextmanager
def hook_everywhere() -> Iterator[None]:
    def at_units(module: nn.Module, args: Any, out: Any) -> Any:
        return None if isinstance(module, Quiet) else noise(module, args, out)  # draws between layers are refused

    handle = register_module_forward_hook(at_units)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def hook_at(module: nn.Module) -> Iterator[None]:
    module.register_forward_hook(noise)
    yield


@pytest.mark.parametrize("called", [True, False], ids=["later", "before the first call"])
@pytest.mark.parametrize("where", ["unit", "inside", "everywhere"])
def test_hooks_are_seeded(where: str, called: bool) -> None:
    """They were left without seeds for Python's generator, and would have been without any."""
    space, x = Quiet(), torch.ones(2, 3)
    assert all(draws_with_torch(module) for module in space.layers.modules())  # as somebody else may have asked
    if called:
        space(x)
        assert not any(known.draws for known in space.__dict__["_binding"].units._units.values())
    layers = space.layers
    hung = {"unit": lambda: hook_at(layers[1]), "inside": lambda: hook_at(layers[0][1])}  # type: ignore[index]
    with hook_everywhere() if where == "everywhere" else hung[where]():
        drawn: list[Tensor] = []
        for n in (0, 3):
            torch.rand(n), [random.random() for _ in range(n)]
            with context.step_context(context.StepContext.of(0, 0, 0, "fp32", x.device)):
                drawn.append(space(x).detach())
        assert not torch.equal(drawn[0], space(x))
    assert torch.equal(*drawn)
    units = space.__dict__["_binding"].units
    changed = [known.draws and not known.torch_only for known in units._units.values()]
    assert changed == {"unit": [False, True], "inside": [True, False], "everywhere": [True, True]}[where]


def test_a_loop_that_draws_after_the_model_is_keyed_by_the_last_step() -> None:
    """As it is where that step may draw, whatever was drawn before."""
    space, x, drawn = Quiet(), torch.ones(2, 3), list[Tensor]()
    space(x)
    units = list(space.__dict__["_binding"].units._units.values())
    assert not any(known.draws for known in units)
    for draws in (False, False, True):
        for known in units:
            known.draws = draws
        torch.rand(len(drawn))
        with context.step_context(context.StepContext.of(0, 0, 0, "fp32", x.device)):
            space(x)
            drawn.append(torch.rand(5))
    assert torch.equal(drawn[0], drawn[1]) and torch.equal(drawn[0], drawn[2])


def test_nobody_notices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = recipe(**{**CHAIN, "space": "strides.py:Mixed", "space_args": {}, "steps": 8})
    found = hashes(run(made, tmp_path / "left out", engine="plain"))
    assert hashes(run(made, tmp_path / "2", workers=2)) == found
    monkeypatch.setattr(unit, "may_draw", lambda module: True)
    assert hashes(run(made, tmp_path / "seeded", engine="plain")) == found
