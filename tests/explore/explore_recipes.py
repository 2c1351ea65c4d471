"""Recipes of the spaces in `nets.py`, and the plain loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

import sennit as sn
from sennit.recipe import Recipe, use_recipe

HERE = Path(__file__).parent


def make_recipe(space: str = "Net", data: str = "Points", **changes: Any) -> Recipe:
    settings: dict[str, Any] = {
        "space": f"nets.py:{space}", "data": f"nets.py:{data}", "batch_size": 20, "steps": 24, "lr": 0.05,
        "optimizer": {"name": "sgd", "momentum": 0.9}, "seed": 3, "base": str(HERE),
    }  # fmt: skip
    recipe = Recipe(**{**settings, **changes})
    use_recipe(recipe)
    return recipe


def train(recipe: Recipe) -> nn.Module:
    """The plain loop."""
    model = recipe.build_model()
    optimizer = recipe.build_optimizer(model)
    for task in recipe.tasks():
        for j, (x, y) in enumerate(task.micro_batches):
            with sn.keyed_rng(task, j):
                loss = recipe.loss(model(x, arch=task.arch), y, task, j)
                loss.backward()
            task.report(j, loss)
        task.set_lr(optimizer)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return model
