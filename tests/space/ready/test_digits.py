"""`digits`: 4 candidates that run, differ, and exercise the contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from sennit.data import DATA
from sennit.recipe import read_recipe
from sennit.space.initialise import build_on_meta, initialise
from sennit.space.model_space import ModelSpace
from sennit.space.ready import SPACES

RECIPE = Path(__file__).parents[3] / "recipes" / "digits.toml"
NAMES = ("mlp", "conv", "att", "identity")


def small(**arguments: Any) -> ModelSpace:
    space = initialise(build_on_meta(SPACES["digits"], {"width": 16, **arguments}), seed=0)
    assert isinstance(space, ModelSpace)
    return space


def arch(space: ModelSpace, **chosen: str) -> dict[str, str]:
    return {label: chosen.get(label.replace(".", "_"), "identity") for label in space.structure.sites}


def test_blocks_and_candidates() -> None:
    space = small()
    assert {label: site.choice.options() for label, site in space.structure.sites.items()} == {
        f"blocks.{i}": NAMES for i in range(8)
    }
    assert space.structure.size() == 4**8
    kinds = {type(part) for part in space.get_submodule("blocks.3").modules()}
    assert {nn.BatchNorm2d, nn.LayerNorm, nn.Dropout, nn.Identity} < kinds


def test_every_candidate_of_every_block_records_and_trains() -> None:
    space = small()
    for chosen in space.structure.covering():
        logits = space(torch.randn(4, 64), arch=chosen)
        assert logits.shape == (4, 10)
        logits.square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in space.parameters())


def test_an_image_and_its_pixels_in_a_row_are_the_same() -> None:
    space = small().eval()
    images = torch.randn(3, 1, 8, 8)
    chosen = arch(space, blocks_0="conv", blocks_5="att")
    assert torch.equal(space(images, arch=chosen), space(images.flatten(1), arch=chosen))


@pytest.mark.parametrize(("name", "reach"), [("mlp", 1), ("conv", 9), ("att", 16), ("identity", 1)])
def test_candidates_see_one_patch_or_neighbours_or_all(name: str, reach: int) -> None:
    candidate = small().eval().get_submodule(f"blocks.0.{name}")
    x = torch.randn(1, 16, 16, requires_grad=True)
    candidate(x)[0, 5].sum().backward()  # patch 5 has neighbours on all sides
    assert x.grad is not None
    assert int((x.grad[0].abs().sum(-1) > 0).sum()) == reach


def test_a_network_without_conv_and_att_cannot_relate_patches() -> None:
    """What makes archs differ: such a network is a sum over patches, before the head's norm."""
    space = small().eval()
    chosen = arch(space, blocks_0="mlp", blocks_7="mlp")
    stem, head = space.get_submodule("stem"), space.get_submodule("head")
    x = torch.randn(2, 64)
    alone = stem(x)
    for block in ("blocks.0.mlp", "blocks.7.mlp"):
        alone = torch.stack([space.get_submodule(block)(alone[:, [i]])[:, 0] for i in range(16)], dim=1)
    assert torch.allclose(space(x, arch=chosen), head(alone), atol=1e-5)


def test_the_recipe_fits_its_space_and_data() -> None:
    recipe = read_recipe(RECIPE)
    x, y = DATA[recipe.data]("train", **recipe.data_args)[0]
    space = build_on_meta(SPACES[recipe.space], recipe.space_args)
    assert isinstance(space, ModelSpace)
    program = space.program(space.structure.default(), x[None].to("meta"))
    assert len(program.steps) == 10 and 0 <= int(y) < 10
