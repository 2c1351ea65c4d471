"""`Constructing`: what a constructor does with tensors that have no memory yet.

    nn.Linear(8, 4) ─▶ reset_parameters ─▶ draws      left out; they come again, keyed, once there is memory
    nn.init.zeros_(self.head.weight), self.apply(init), load_state_dict, .data.fill_()      noted: they would be lost

What is noted is refused if a library's `reset_parameters` is what gives the tensor its value afterwards. A user's own
may do the same again as the constructor, and then nothing is lost.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sennit.errors import SpaceError
from sennit.frames import OURS, is_users

LOST = """{where} gives {kind} {name!r} a value in a constructor, which would be lost: the space is built without memory
first, and {owner}.reset_parameters draws this tensor once there is some. Give values in the space's init,
    def init(self, name, module):  # called for each module, by its path
        if name != {path!r}:
            return False           # left to its reset_parameters
        module.reset_parameters()
        nn.init.zeros_(module.{attribute})  # or .copy_(...), of weights from a file
        return True
or in a reset_parameters of a module of yours."""

_DRAWS = frozenset(
    "normal_ uniform_ bernoulli_ exponential_ geometric_ cauchy_ log_normal_ random_ fill_ zero_ constant_ "
    "kaiming_uniform_ kaiming_normal_ xavier_uniform_ xavier_normal_ trunc_normal_ ones_ zeros_".split()
)

_WRITE_NOTHING = frozenset(
    "requires_grad_ detach_ share_memory_ rename_ squeeze_ unsqueeze_ t_ transpose_ swapaxes_ swapdims_ resize_ set_ "
    "as_strided_".split()
)
"""End like functions that write numbers."""

_OPERATORS = frozenset("__setitem__ __iadd__ __isub__ __imul__ __itruediv__".split())

_RESETS = frozenset(("reset_parameters", "_reset_parameters"))

PLACES = "_given_in_constructors"
"""Attribute of a space: `(path of the module, attribute)` to where it was given a value."""


class Constructing(TorchFunctionMode):
    """Around a constructor. Tensors without data are not filled: a third of the time that building a large space takes.

    Attributes:
        given: storage to where it was written first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[int, str] = {}
        self._held: list[Tensor] = []
        """Keeps these storages, so that none gets the place of another."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        draws = name in _DRAWS
        if draws or name in _OPERATORS or (name.endswith("_") and name[0] != "_" and name not in _WRITE_NOTHING):
            filled = args[0] if args else kwargs.get("tensor")  # functions of nn.init pass it by name
            if isinstance(filled, Tensor) and filled.is_meta:
                self._note(filled)
                if draws:
                    return filled
        return func(*args, **kwargs)

    def _note(self, tensor: Tensor) -> None:
        where = written_by_user()
        if where:
            with torch._C.DisableTorchFunction():
                key = tensor.untyped_storage()._cdata
            if key not in self.given:
                self.given[key] = where
                self._held.append(tensor)

    def mark(self, space: nn.Module) -> None:
        """Note at `space` which of its tensors were given a value."""
        found: dict[tuple[str, str], str] = {}
        for path, module in space.named_modules():
            for attribute, tensor in (*module._parameters.items(), *module._buffers.items()):
                if tensor is not None and (where := self.given.get(tensor.untyped_storage()._cdata)):
                    found[path, attribute] = where
        if found:
            object.__setattr__(space, PLACES, found)


def written_by_user() -> str:
    """Where a user's code writes a tensor, `file:line`; nothing if that happens within a `reset_parameters`, or within
    the constructor of a layer of torch's or sennit's."""
    frame, found = sys._getframe(1), ""
    while frame is not None:
        code = frame.f_code
        if code.co_name in _RESETS:
            return ""
        if not found and is_users(code.co_filename):
            found = f"{code.co_filename}:{frame.f_lineno}"
        elif not found and code.co_name == "__init__" and not code.co_filename.endswith("given_values.py"):
            return ""  # of a layer of a library
        frame = frame.f_back
    return found


def refuse_lost(space: nn.Module, path: str, module: nn.Module, reset: Callable[[], Any]) -> None:
    """A module is about to draw its values by its own `reset`.

    Raises:
        SpaceError: a constructor has given it some.
    """
    places: Mapping[tuple[str, str], str] = space.__dict__.get(PLACES, {})
    if not places or is_users(getattr(getattr(reset, "__code__", None), "co_filename", OURS)):
        return
    for kind, table in (("parameter", module._parameters), ("buffer", module._buffers)):
        for attribute in table:
            if where := places.get((path, attribute)):
                raise SpaceError(
                    LOST.format(
                        where=where, kind=kind, name=f"{path}.{attribute}" if path else attribute, path=path,
                        owner=type(module).__name__, attribute=attribute,
                    )
                )  # fmt: skip
