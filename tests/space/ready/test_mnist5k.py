"""`mnist5k`: every candidate runs, and workers keep the bits of the plain loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tests.gpus import on_gpu
from torch import nn

from sennit.recipe import Placement, Recipe, read_recipe
from sennit.runtime.request import Request
from sennit.runtime.train import train
from sennit.space.initialise import build_on_meta, initialise
from sennit.space.model_space import ModelSpace
from sennit.space.ready import SPACES

RECIPE = Path(__file__).parents[3] / "recipes" / "mnist5k.toml"


def small(**arguments: Any) -> ModelSpace:
    built = build_on_meta(SPACES["mnist5k"], {"width": 8, **arguments})
    assert isinstance(built, ModelSpace)
    return built


def test_blocks_and_candidates() -> None:
    space = small()
    assert [len(site.choice.options()) for site in space.structure.sites.values()] == [4] * 8
    block = space.get_submodule("blocks.0")
    signatures = {f"{part!r} {[tuple(p.shape) for p in part.parameters()]}" for part in block.children()}
    assert len(signatures) == 4
    kinds = {type(part) for part in block.modules()}
    assert {nn.BatchNorm2d, nn.Dropout2d, nn.ConvTranspose2d, nn.Identity} < kinds


def test_every_candidate_of_every_block_runs() -> None:
    run_all("cpu")


@on_gpu
def test_every_candidate_of_every_block_runs_on_a_gpu() -> None:
    run_all("cuda")


def run_all(device: str) -> None:
    space = initialise(small(), seed=0).to(device)
    for arch in space.structure.covering():  # type: ignore[union-attr, operator]
        logits = space(torch.randn(4, 1, 28, 28, device=device), arch=arch)
        assert logits.shape == (4, 10)
        logits.square().sum().backward()
    grads = [p.grad for p in space.parameters()]
    assert all(g is not None and bool(g.isfinite().all()) for g in grads)


def hashes(recipe: Recipe, out: Path, engine: Any, workers: int = 1) -> list[Any]:
    result = train(Request(recipe=recipe, placement=Placement(workers=workers), engine=engine, out=out))
    return [result[key] for key in ("weights_sha256", "optimizer_sha256", "losses_sha256")]


def test_workers_give_the_bits_of_the_plain_loop(tmp_path: Path) -> None:
    changes = {
        "batch_size": 12,
        "steps": 6,
        "space_args": {"width": 8},
        "data_args": {"limit": 100},
        "evaluate": {"every": 0},
    }
    recipe = Recipe.from_dict({**read_recipe(RECIPE).to_dict(), **changes}, str(RECIPE.parent))
    plain = hashes(recipe, tmp_path / "plain", "plain")
    assert hashes(recipe, tmp_path / "two", "pipeline", workers=2) == plain
