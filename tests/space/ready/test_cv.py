"""`cv.c1` .. `cv.c3`: every candidate runs, is another one than its neighbours, and keeps the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.gpus import on_gpu
from torch import Tensor, nn

from sennit.errors import SpaceError
from sennit.program.step import Program
from sennit.recipe import Placement, Recipe, read_recipe
from sennit.runtime.request import Request
from sennit.runtime.train import train
from sennit.space.initialise import build_on_meta, initialise
from sennit.space.model_space import ModelSpace
from sennit.space.ready import SPACES
from sennit.space.ready.cv.catalogue import NAMES, candidate

RECIPES = Path(__file__).parents[3] / "recipes"
COUNTS = {"cv.c1": 48, "cv.c2": 24, "cv.c3": 12, "cv.c3-small": 12}
SIZE = 8
"""Height and width of the images in these tests."""


def small(space: str, **arguments: Any) -> ModelSpace:
    built = build_on_meta(SPACES[space], {"width": 8, "channels": 1, **arguments})
    assert isinstance(built, ModelSpace)
    return built


def signature(module: nn.Module) -> str:
    """Types, hyper-parameters and parameter shapes, without the names of parts."""
    shapes = [tuple(p.shape) for p in module.parameters()]
    return f"{module!r} {shapes}"


def readers(program: Program, value: int) -> list[str]:
    return [step.block for step in program.steps if value in step.reads and step.kind != "shape"]


@pytest.mark.parametrize("recipe", COUNTS)
def test_recipes_give_spaces_of_32_named_blocks(recipe: str) -> None:
    space = read_recipe(RECIPES / f"{recipe}.toml").built.skeleton
    assert isinstance(space, ModelSpace)
    sites = space.structure.sites
    assert list(sites) == [f"blocks.{i}" for i in range(32)]
    assert {site.choice.options() for site in sites.values()} == {tuple(NAMES[: COUNTS[recipe]])}


def test_smaller_spaces_hold_one_of_everything() -> None:
    kinds = {type(part) for name in NAMES[:12] for part in candidate(name, 8, False).modules()}
    assert {nn.BatchNorm2d, nn.Dropout, nn.ConvTranspose2d, nn.AvgPool2d, nn.MaxPool2d} < kinds
    assert {"conv3_last", "identity", "mb3k5_se"} < set(NAMES[:12])


@pytest.mark.parametrize("reduces", [False, True])
def test_candidates_are_distinct(reduces: bool) -> None:
    assert len(NAMES) == len(set(NAMES)) == 48
    with torch.device("meta"):
        signatures = {signature(candidate(name, 8, reduces)) for name in NAMES}
    assert len(signatures) == 48


@pytest.mark.parametrize("reduces", [False, True])
def test_what_a_cell_says_without_data_is_what_it_returns(reduces: bool) -> None:
    compare_all(reduces, "cpu")


@on_gpu
@pytest.mark.parametrize("reduces", [False, True])
def test_what_a_cell_says_without_data_is_what_it_returns_on_a_gpu(reduces: bool) -> None:
    compare_all(reduces, "cuda")


def compare_all(reduces: bool, device: str) -> None:
    torch.manual_seed(0)
    for name in NAMES:
        cell = candidate(name, 8, reduces).to(device)
        x, older = (torch.randn(3, 8, SIZE, SIZE, device=device, requires_grad=True) for _ in range(2))
        entered = x + 0, older + 0
        versions = [t._version for t in entered]
        out = cell(*entered)
        assert [t._version for t in entered] == versions, name
        said = candidate(name, 8, reduces)(*(t.detach().to("meta") for t in entered))
        assert (out.shape, out.dtype) == (said.shape, said.dtype), name
        out.square().sum().backward()
        leaves = [x, older, *cell.parameters()]
        assert all(t.grad is not None and bool(t.grad.isfinite().all()) for t in leaves), name


def test_every_candidate_of_every_block_runs() -> None:
    run_all("cpu")


@on_gpu
def test_every_candidate_of_every_block_runs_on_a_gpu() -> None:
    run_all("cuda")


def run_all(device: str) -> None:
    space = initialise(small("cv.c1", blocks=6), seed=0).to(device)
    assert isinstance(space, ModelSpace)
    reached: set[str] = set()
    for arch in space.structure.covering():
        logits = space(torch.randn(4, 1, SIZE, SIZE, device=device), arch=arch)
        assert logits.shape == (4, 10)
        logits.square().sum().backward()
        reached.update(step.name for step in space.program(arch, torch.empty(4, 1, SIZE, SIZE)).steps)
    assert {f"blocks.{i}.{name}" for i in range(6) for name in NAMES} <= reached
    grads = [p.grad for p in space.parameters()]
    assert all(g is not None and bool(g.isfinite().all()) for g in grads)


def test_outputs_are_read_by_the_two_next_blocks() -> None:
    space = small("cv.c3")
    program = space.program({f"blocks.{i}": NAMES[i % 12] for i in range(32)}, torch.empty(2, 1, SIZE, SIZE))
    blocks = [step for step in program.steps if step.name.startswith("blocks.")]
    assert len(blocks) == 32
    reductions = (10, 21)
    for i, step in enumerate(blocks[:-1]):
        later = [f"blocks.{j}" for j in (i + 1, i + 2) if j < 32]
        if i + 1 in reductions:  # the block after next follows a reduction and gets that twice
            later = later[:1]
        expected = ["head"] if i == 31 else later
        assert readers(program, step.writes[0]) == expected, i
    skipping = sum(len(readers(program, step.writes[0])) == 2 for step in blocks)
    assert skipping == 28


def test_bad_arguments_are_refused() -> None:
    for bad in ({"width": 6}, {"blocks": 2}):
        with pytest.raises(SpaceError):
            small("cv.c3", **bad)
    with pytest.raises(SpaceError, match="divide by 4"):
        small("cv.c3").program({f"blocks.{i}": "conv3_last" for i in range(32)}, torch.empty(2, 1, 6, 6))


def tiny() -> Recipe:
    plain = {
        **read_recipe(RECIPES / "cv.c3-small.toml").to_dict(),
        "batch_size": 12,
        "steps": 6,
        "micro_batches": 2,
        "space_args": {"width": 4, "blocks": 6, "channels": 1},
        "evaluate": {"every": 0},
    }
    return Recipe.from_dict(plain, str(RECIPES))


def hashes(recipe: Recipe, out: Path, engine: Any, workers: int = 1) -> list[Any]:
    result = train(Request(recipe=recipe, placement=Placement(workers=workers), engine=engine, out=out))
    return [result[key] for key in ("weights_sha256", "optimizer_sha256", "losses_sha256")]


def test_workers_give_the_bits_of_the_plain_loop(tmp_path: Path) -> None:
    plain = hashes(tiny(), tmp_path / "plain", "plain")
    assert hashes(tiny(), tmp_path / "two", "pipeline", workers=2) == plain


def test_channels_last_cells_leave_strides_behind() -> None:
    """So that the space does show what an Edge is for."""
    cell = candidate("conv3_last", 8, False)
    assert isinstance(cell.operator, nn.Module)
    out: Tensor = cell.operator(torch.randn(2, 8, SIZE, SIZE))
    assert not out.is_contiguous() and out.is_contiguous(memory_format=torch.channels_last)
