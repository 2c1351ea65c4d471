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


@pytest.mark.parametrize(
    ("name", "reach"),
    [("mlp", {5}), ("conv", {0, 1, 2, 4, 5, 6, 8, 9, 10}), ("att", {4, 5, 6, 7}), ("identity", {5})],
)
def test_candidates_see_one_patch_or_its_neighbours_or_its_row(name: str, reach: set[int]) -> None:
    candidate = small().eval().get_submodule(f"blocks.0.{name}")
    x = torch.randn(1, 16, 16, requires_grad=True)
    candidate(x)[0, 5].sum().backward()  # row 1, column 1 of 4×4
    assert x.grad is not None
    assert {i for i in range(16) if float(x.grad[0, i].abs().sum())} == reach


@pytest.mark.parametrize(
    ("chosen", "seen"),
    [
        ({}, 1),
        ({"blocks_0": "mlp", "blocks_7": "mlp"}, 1),
        ({"blocks_2": "att"}, 4),
        ({"blocks_2": "conv"}, 4),
        ({"blocks_2": "conv", "blocks_3": "att"}, 8),
        ({"blocks_1": "conv", "blocks_2": "conv", "blocks_3": "conv"}, 16),
    ],
)
def test_the_head_reads_a_corner_so_that_archs_differ_in_what_they_see(chosen: dict[str, str], seen: int) -> None:
    space = small().eval()
    x = torch.randn(1, 64, requires_grad=True)
    space(x, arch=arch(space, **chosen)).square().sum().backward()
    assert x.grad is not None
    patches = x.grad.view(4, 2, 4, 2).abs().sum((1, 3))
    assert int((patches > 0).sum()) == seen


def test_the_recipe_fits_its_space_and_data() -> None:
    recipe = read_recipe(RECIPE)
    x, y = DATA[recipe.data]("train", **recipe.data_args)[0]
    space = build_on_meta(SPACES[recipe.space], recipe.space_args)
    assert isinstance(space, ModelSpace)
    program = space.program(space.structure.default(), x[None].to("meta"))
    assert len(program.steps) == 10 and 0 <= int(y) < 10
