"""sennit: supernets and large static networks as pipelines, the same bits on any number of devices."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sennit.recipe import Placement as Placement
    from sennit.recipe import Recipe as Recipe
    from sennit.recipe import load_recipe as load_recipe
    from sennit.space import InputChoice as InputChoice
    from sennit.space import LayerChoice as LayerChoice
    from sennit.space import ModelSpace as ModelSpace
    from sennit.space import Repeat as Repeat
    from sennit.supernet.hashes import state_hash as state_hash
    from sennit.supernet.task import keyed_rng as keyed_rng

__version__ = "0.1.0"

_HOME = {
    "Placement": "sennit.recipe",
    "Recipe": "sennit.recipe",
    "load_recipe": "sennit.recipe",
    "InputChoice": "sennit.space",
    "LayerChoice": "sennit.space",
    "ModelSpace": "sennit.space",
    "Repeat": "sennit.space",
    "state_hash": "sennit.supernet.hashes",
    "keyed_rng": "sennit.supernet.task",
}
"""Module of each public name. They are imported when first used, because importing torch takes two seconds
and `sennit --help` needs none of it."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sennit' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOME[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
