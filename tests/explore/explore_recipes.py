"""Recipes of the spaces in `nets.py`, trained by the plain loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.plain_loop import run_plain
from torch import nn

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
    """The supernet, trained by the plain loop."""
    return run_plain(recipe)[0]
