"""When two modules compute the same, so that what is captured of one can be replayed for the other.

Stricter than `profile.kinds`, which asks only for equal cost. A module is followed down to everything that its forward
could look at: classes, settings, functions. What is not understood makes the module the only one of its kind.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Hashable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from sennit.program.step import Step
from sennit.program.template import DeviceRef, DimExpr, ModeConst, OpExpr, Ref, map_tree

_OWN = frozenset(vars(nn.Module()))
"""Attributes that every module has: tables of tensors, modules and hooks."""

_HOOKS = tuple(name for name in sorted(_OWN) if name.endswith("_hooks"))

_PLAIN = (
    int, float, complex, bool, str, bytes, type(None), type(Ellipsis), torch.dtype, torch.device, torch.memory_format,
    enum.Enum,
)  # fmt: skip

_BY_IDENTITY = (type, types.FunctionType, types.BuiltinFunctionType)


class Unknown(Exception):
    """A value whose meaning cannot be compared."""


def same_module(module: nn.Module) -> Hashable:
    """Equal for two modules only if they compute the same with the same tensors. Its parameters and buffers do not
    count.

    Raises:
        Unknown: something in it cannot be compared.
    """
    found: list[Hashable] = []
    for path, inner in module.named_modules(remove_duplicate=False):
        if hooked(inner):
            raise Unknown(f"{path or type(module).__name__} has hooks")
        own = {key: plain(value) for key, value in vars(inner).items() if key not in _OWN}
        missing = [key for key, child in inner._modules.items() if child is None]
        unset = [key for table in (inner._parameters, inner._buffers) for key, held in table.items() if held is None]
        found.append(
            (path, type(inner), tuple(sorted(own.items(), key=lambda item: item[0])), tuple(missing), tuple(unset))
        )
    return tuple(found)


def hooked(module: nn.Module) -> bool:
    """Whether calling it does more than its forward."""
    return any(vars(module).get(name) for name in _HOOKS)


def plain(value: Any) -> Hashable:
    """A value in a form that can be compared.

    Raises:
        Unknown: it has none.
    """
    if isinstance(value, _PLAIN):
        return (type(value), repr(value))  # 1, 1.0 and True are three settings, and so are 0.0 and -0.0
    if isinstance(value, _BY_IDENTITY):
        return (id(value), value)  # two closures of one function are two; held, so that no other gets its id
    if isinstance(value, tuple | list):
        return (type(value), tuple(plain(item) for item in value))
    if isinstance(value, dict):
        return (type(value), tuple((plain(key), plain(item)) for key, item in value.items()))
    if isinstance(value, set | frozenset):
        return (type(value), tuple(sorted((plain(item) for item in value), key=repr)))
    if isinstance(value, partial):
        return (partial, plain(value.func), plain(value.args), plain(value.keywords))
    raise Unknown(f"{type(value).__name__} cannot be compared")


def same_call(step: Step) -> Hashable:
    """How a step calls its module, with values by the order in which they are read.

    Raises:
        Unknown: an argument that cannot be compared.
    """
    place = {value: i for i, value in enumerate((*step.reads, *step.writes))}
    templates = (step.args, step.kwargs, step.out)
    found = (repr(map_tree(partial(_leaf, place), template)) for template in templates)
    return (*found, step.no_grad, len(step.reads))


def _leaf(place: Mapping[int, int], item: Any) -> Hashable:
    """An argument, with values by their place."""
    if isinstance(item, Ref):
        return (Ref, place.get(item.value, -1))
    if isinstance(item, DimExpr):
        return (DimExpr, place.get(item.shape, -1), item.axis)
    if isinstance(item, OpExpr):
        return (item.op, _leaf(place, item.left), _leaf(place, item.right))
    if isinstance(item, DeviceRef | ModeConst):
        return repr(item)
    return plain(item)
