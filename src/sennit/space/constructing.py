"""What constructors write while a space is built without memory: noted with its place, since nothing is stored.

    nn.init.zeros_(self.head.weight)     a constructor's own: noted, for when values are drawn (`space/lost.py`)
    self.head.reset_parameters()         will be called again: not noted
    nn.Linear(3, 2)                      torch's own constructor: not noted

Functions that draw are skipped: that is a third of the time that building a large space takes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, UntypedStorage, nn
from torch.overrides import TorchFunctionMode

from sennit.frames import OURS

RESETS = ("reset_parameters", "_reset_parameters")

_TORCH = str(Path(torch.__file__).parent)
_BETWEEN = tuple(
    str(Path(_TORCH, file)) for file in ("nn/init.py", "overrides.py", "_tensor.py", "utils/_contextlib.py")
)
"""Between who writes and the mode that sees it."""

_LOADS = "_load_from_state_dict"
_INIT = str(Path(_TORCH, "nn/init.py"))
_IS_META: Any = torch.Tensor.is_meta.__get__  # pyright: ignore[reportAttributeAccessIssue]
_SETS_DATA: Any = torch.Tensor.data.__set__  # pyright: ignore[reportAttributeAccessIssue]

_DRAWS = frozenset(
    "normal_ uniform_ bernoulli_ exponential_ geometric_ cauchy_ log_normal_ random_ fill_ zero_ constant_ "
    "kaiming_uniform_ kaiming_normal_ xavier_uniform_ xavier_normal_ trunc_normal_ ones_ zeros_".split()
)
_CONSTANTS: Mapping[str, float | None] = {"zero_": 0.0, "zeros_": 0.0, "ones_": 1.0, "fill_": None, "constant_": None}
"""None: the second argument."""

_NO_WRITES = frozenset(
    "requires_grad_ detach_ squeeze_ unsqueeze_ t_ transpose_ swapaxes_ swapdims_ rename_ share_memory_ "
    "as_strided_".split()
)


@dataclass(frozen=True)
class Given:
    """What a constructor has written last into a tensor.

    Attributes:
        storage: of the tensor; held, so that no other one gets its address.
        where: file, line and function.
        constant: the number that it is filled with, if it is that.
    """

    storage: UntypedStorage
    where: str
    constant: float | None


_NOTED: WeakKeyDictionary[nn.Module, dict[int, Given]] = WeakKeyDictionary()
"""By space, and address of the storage."""


class Constructing(TorchFunctionMode):
    """While a space is built. Tensors without data are not filled: a third of the time that building a large one takes.

    Attributes:
        given: what was written, but by torch's own constructors and within a reset.
    """

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[int, Given] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        # functions of nn.init pass the tensor by name; some ask first whether it has data, and write nothing then
        into = args[0] if args else kwargs.get("tensor")
        asks = func == _IS_META and sys._getframe(1).f_code.co_filename == _INIT
        if not (asks or _writes(func, name)) or not (isinstance(into, Tensor) and into.is_meta):
            return func(*args, **kwargs)
        found = into if name in _DRAWS else func(*args, **kwargs)
        where = _writer()
        if where is not None:
            storage = into.untyped_storage()
            self.given[storage._cdata] = Given(storage, where, _constant(name, args, kwargs))
        return found

    def note(self, space: nn.Module) -> None:
        """For when its values are drawn."""
        if self.given:
            _NOTED[space] = self.given


def _writes(func: Any, name: str) -> bool:
    """Whether a function writes what it is given first."""
    if name.startswith("__"):
        return name == "__setitem__" or func == _SETS_DATA
    return name.endswith("_") and name not in _NO_WRITES


def _constant(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> float | None:
    """The number that all of a tensor is filled with."""
    if name not in _CONSTANTS:
        return None
    known = _CONSTANTS[name]
    number = (
        next((a for a in (*args[1:], *kwargs.values()) if not isinstance(a, Tensor)), None) if known is None else known
    )
    return float(number) if isinstance(number, int | float) else None


def _writer() -> str | None:
    """Who writes; None if that is torch's own constructor, or a reset, which will be called again."""
    frame, first, where = sys._getframe(2), True, ""
    while frame is not None and frame.f_code.co_name != "build_on_meta":
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if name in RESETS:
            return None
        if file not in _BETWEEN:
            torchs = file.startswith(_TORCH)
            if first and torchs and name != _LOADS:
                return None
            if not where and not torchs and not file.startswith(OURS):
                where = f"{file}:{frame.f_lineno} in {name}"
            first = False
        frame = frame.f_back
    return where or "an unknown place"


def taken(space: nn.Module) -> dict[int, Given]:
    """What was noted of a space, by address of the storage; told once."""
    return _NOTED.pop(space, {})
