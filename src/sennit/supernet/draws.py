"""`draws_with_torch`: modules that certainly draw from torch's generators alone.

Seeding Python's and numpy's generators before each step takes a few per cent of a small step. It is left out where
nobody can notice: modules of torch and of the ready spaces never draw from them. Of other code nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

KNOWN = ("torch.", "sennit.space.ready.")
"""Packages whose modules draw with torch alone."""

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

_known: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def draws_with_torch(module: nn.Module) -> bool:
    """Whether nothing that `module` runs can draw from Python's or numpy's generator. Looked up once per module."""
    found = _known.get(module)
    if found is None:
        found = _known[module] = all(map(_is_known, module.modules()))
    return found


def _is_known(module: nn.Module) -> bool:
    """The class is, and nobody has hung code of his own into the module: an activation function, a hook."""
    if not _of_known(type(module)) or any(getattr(module, name) for name in _HOOKS):
        return False
    return all(_of_known(held) for held in vars(module).values() if callable(held))


def _of_known(code: Callable[..., Any]) -> bool:
    where = getattr(code, "__module__", None)
    return isinstance(where, str) and f"{where}.".startswith(KNOWN)
