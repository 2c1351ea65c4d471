"""The same on a GPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.gpus import on_gpu

from sennit.explore.evaluate import Evaluation, Evaluator, evaluate
from sennit.explore.export import export, same_bits
from sennit.explore.retrain import retrain
from sennit.explore.search import search
from sennit.explore.traced import load
from sennit.recipe import Recipe

Make = Callable[..., Recipe]
FEW = Evaluation(samples=50, recalibrate=2)


@on_gpu
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_search_and_export(make: Make, tmp_path: Path, precision: str) -> None:
    recipe = make(precision=precision)
    model: Any = recipe.build_model().cuda()
    torch.cuda.manual_seed(5)
    before = torch.cuda.get_rng_state()
    result = search(recipe, model, tmp_path / "s", budget=6, evaluation=FEW, device="cuda")
    assert torch.equal(torch.cuda.get_rng_state(), before)
    best = result.best
    assert evaluate(recipe, model, best.arch, FEW, "cuda") == best.metrics
    done = export(recipe, model, best.arch, tmp_path / "net", evaluation=FEW, metrics=best.metrics, device="cuda")
    assert json.loads((done.folder / "arch.json").read_text())["settings"]["device"] == "cuda"
    evaluator = Evaluator(recipe, FEW, "cuda")
    loaded = load(done.folder / "network.pt2")
    network = evaluator.prepared(model, best.arch)
    x = evaluator.batches[0][0]
    assert same_bits(evaluator.output(loaded, x), evaluator.output(network, x))
    anywhere = export(recipe, model.cpu(), best.arch, tmp_path / "cpu", evaluation=FEW)
    assert load(anywhere.folder / "network.pt2")(torch.zeros(3, 64)).device.type == "cpu"


@on_gpu
def test_flops_are_counted_alike(make: Make) -> None:
    recipe = make()
    model: Any = recipe.build_model()
    arch = {"blocks.0": 0, "blocks.1": 1, "blocks.2": 2, "blocks.3": 3}
    on_cpu = evaluate(recipe, model, arch, FEW)["flops"]
    assert evaluate(recipe, model.cuda(), arch, FEW, "cuda")["flops"] == on_cpu


@on_gpu
def test_retrain(make: Make) -> None:
    recipe = make(steps=3)
    arch = {"blocks.0": 0, "blocks.1": 1, "blocks.2": 2, "blocks.3": 3}
    first = retrain(recipe, arch, seed=1, device="cuda")
    assert retrain(recipe, arch, seed=1, device="cuda").losses == first.losses
