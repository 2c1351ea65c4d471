"""`draws_with_torch`: modules that certainly draw from torch's generators alone.

Seeding Python's and numpy's generators before each step takes a few per cent of a small step. It is left out where
nobody can notice: modules of torch and of the ready spaces never draw from them. Of other code nobody knows.
"""

from __future__ import annotations

from functools import cache
from types import FunctionType, MethodType
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


def hooked(module: nn.Module) -> bool:
    """Whether hooks run at its calls."""
    return any(getattr(module, name) for name in _HOOKS)


def _is_known(module: nn.Module) -> bool:
    """The class is, and nobody has hung code of his own into the module: an activation function, a hook."""
    if not _class_is_known(type(module)) or hooked(module):
        return False
    return all(_of_known(held) for held in vars(module).values() if callable(held))


@cache
def _class_is_known(cls: type[nn.Module]) -> bool:
    """Wherever it says that it is from: all its code is, that of its bases, too."""
    held = [code for c in cls.__mro__ if c not in (nn.Module, object) for code in (c, *vars(c).values())]
    return all(_of_known(code) for code in held if isinstance(code, type | FunctionType | staticmethod | classmethod))


def _of_known(code: Any) -> bool:
    """A class, a function or an object that is called.

    `functools.wraps` makes a function say another one's module, so what counts is where it was written, and what it
    wraps.
    """
    if isinstance(code, nn.Module):
        return draws_with_torch(code)
    if isinstance(code, staticmethod | classmethod | MethodType):
        return _of_known(code.__func__) and not (isinstance(code, MethodType) and _is_unknown_module(code.__self__))
    if (wrapped := getattr(code, "__wrapped__", None)) is not None and not _of_known(wrapped):
        return False
    where = code.__globals__.get("__name__") if isinstance(code, FunctionType) else getattr(code, "__module__", None)
    return isinstance(where, str) and f"{where}.".startswith(KNOWN)


def _is_unknown_module(held: object) -> bool:
    return isinstance(held, nn.Module) and not draws_with_torch(held)
