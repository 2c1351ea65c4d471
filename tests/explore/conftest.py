from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from explore_recipes import make_recipe, train
from torch import nn

from sennit.recipe import Recipe, use_recipe


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    return make_recipe()


@pytest.fixture(scope="session")
def trained(recipe: Recipe) -> nn.Module:
    """A trained supernet, in training mode; tests must leave it alone."""
    return train(recipe)


@pytest.fixture(autouse=True)
def _process_as_found(recipe: Recipe) -> Any:
    use_recipe(recipe)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def make() -> Callable[..., Recipe]:
    return make_recipe
