"""A frozen network is the network that the space runs, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sennit as sn
from sennit.explore.archs import Draws, random_arch
from sennit.explore.export import same_bits
from sennit.explore.frozen import freeze
from sennit.recipe import Recipe

Make = Callable[..., Recipe]


def inputs(space: str) -> Any:
    generator = torch.Generator().manual_seed(1)
    if space == "Pair":
        return {
            "source": torch.randint(0, 12, (6, 3), generator=generator),
            "target": torch.randint(0, 12, (6, 5), generator=generator),
        }
    return torch.randn(6, 64, generator=generator)


def call(model: nn.Module, x: Any, **more: Any) -> Tensor:
    with torch.no_grad():
        return model(**x, **more) if isinstance(x, dict) else model(x, **more)


def archs(model: Any, n: int = 12) -> list[dict[str, Any]]:
    return [*model.structure.covering(), *(random_arch(model.structure, Draws(i)) for i in range(n))]


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("space", ["Net", "Winding", "TiedConv", "Pair"])
def test_same_bits_as_the_space_in_eval_mode(make: Make, space: str, copy: bool) -> None:
    model: Any = make(space).build_model().eval()
    x = inputs(space)
    for arch in archs(model):
        network = freeze(model, arch, x, copy_parameters=copy)
        assert not network.training
        assert same_bits(call(network, x), call(model, x, arch=arch)), arch


@pytest.mark.parametrize("space", ["Net", "Winding"])
def test_same_bits_in_training_mode(make: Make, space: str) -> None:
    """With the generator in the same state: dropout and flags follow the mode, statistics are of the copy."""
    model: Any = make(space).build_model().train()
    x = inputs(space)
    for arch in archs(model, 4):
        network = freeze(model, arch, x)
        before = sn.state_hash(model)
        torch.manual_seed(5)
        y = call(network, x)
        assert sn.state_hash(model) == before
        torch.manual_seed(5)
        assert same_bits(y, call(model, x, arch=arch)), arch
        held = dict(network.named_buffers())
        assert all(same_bits(held[n], b) for n, b in model.named_buffers() if n in held)


def test_mode_changes_only_the_copy(make: Make) -> None:
    model: Any = make("Winding").build_model().train()
    network = freeze(model, model.structure.default(), inputs("Winding"), copy_parameters=False)
    network.eval()
    assert all(m.training for m in model.modules())
    assert not same_bits(call(network.train(), inputs("Winding")), call(network.eval(), inputs("Winding")))


def test_holds_what_the_program_uses_under_the_names_of_the_space(make: Make) -> None:
    model: Any = make("Net").build_model()
    arch = {"blocks.0": 3, "blocks.1": 1, "blocks.2": 3, "blocks.3": 0}
    network = freeze(model, arch, inputs("Net"))
    wanted = ("stem.", "head.", "blocks.1.1.", "blocks.3.0.")
    assert set(network.state_dict()) == {n for n in model.state_dict() if n.startswith(wanted)}
    assert all(same_bits(t, model.state_dict()[n]) for n, t in network.state_dict().items())


def test_ties_stay_ties(make: Make) -> None:
    model: Any = make("Winding").build_model()
    network: Any = freeze(model, model.structure.default(), inputs("Winding"))
    assert network.first.weight is network.second.weight
    assert network.first.weight is not model.first.weight
    pair: Any = freeze(make("Pair").build_model(), {"mix": 1}, inputs("Pair"))  # type: ignore[arg-type]
    assert pair.out.weight is pair.embed.weight
    assert sum(p.numel() for p in pair.parameters()) == 12 * 8


def test_copies_or_the_supernets_own(make: Make) -> None:
    model: Any = make("Net").build_model()
    arch = model.structure.default()
    own: Any = freeze(model, arch, inputs("Net"), copy_parameters=False)
    assert own.stem.weight is model.stem.weight
    copied: Any = freeze(model, arch, inputs("Net"))
    assert copied.stem.weight is not model.stem.weight
    with torch.no_grad():
        copied.stem.weight.zero_()
    assert model.stem.weight.abs().sum() > 0


def test_trains_like_any_module(make: Make) -> None:
    model: Any = make("Winding").build_model()
    network = freeze(model, model.structure.default(), inputs("Winding")).train()
    network(inputs("Winding")).square().sum().backward()
    assert all(p.grad is not None for p in network.parameters())
    assert all(p.grad is None for p in model.parameters())


def test_other_batch_sizes(make: Make) -> None:
    model: Any = make("Winding").build_model().eval()
    network = freeze(model, model.structure.default(), inputs("Winding"))
    x = torch.randn(17, 64)
    assert same_bits(call(network, x), call(model, x, arch=model.structure.default()))
