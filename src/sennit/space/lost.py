"""Values that a constructor gives to a layer which then gets others: refused, since they would be lost without a word.

constructor   nn.init.zeros_(self.head.weight)      nothing is stored: there is no memory yet; noted, with its place
drawing       head.reset_parameters()               torch's own: what was noted is lost, unless
              reset_parameters of a user's, `init`  write it later, or it is the same constant
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, UntypedStorage, nn
from torch.overrides import TorchFunctionMode

from sennit.errors import SpaceError
from sennit.frames import OURS
from sennit.space.model_space import ModelSpace

LOST = """{kind} {name!r} of {owner} is given a value in a constructor, at {where},
which would be lost: a space is built without memory first, and this layer then gets its values from torch's own
reset_parameters. Take that out of the constructor, and give values where they are drawn, in the space:
    def init(self, name, module):
        if name == {path!r}:
            ...  # all values of this layer, such as nn.init.zeros_(module.{attribute})
            return True
        return False  # torch's own
or, of a function that is applied to all:
        function(module)
        return isinstance(module, (nn.Linear, nn.Embedding))  # those that it gives all their values
Return True for each layer of a tied parameter."""

FORGOT = """init of the space writes {name!r}, and returns {returned!r} for {path!r}: so the layer got its values from
its own reset_parameters, and what init wrote is lost. Return True where init gives a layer all its values"""

TIED = """init of the space gives {first!r} its values, and {name!r} is one of them, tied: {owner} has drawn it anew
by its reset_parameters, so what init wrote is lost. Return True for {path!r} as well:
    if name in ({first!r}, {path!r}):"""

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
        if not (asks or _writes(func, name)) or not (isinstance(into, Tensor) and _without_data(into)):
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


def _without_data(tensor: Tensor) -> bool:
    return tensor.device.type == "meta"


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


def own_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers of a module without those below it, by name."""
    held = {**module._parameters, **module._buffers}
    return {name: tensor for name, tensor in held.items() if tensor is not None}


class Inits:
    """What `init` of a space has written, and whether a reset writes over it."""

    def __init__(self, space: nn.Module) -> None:
        self.space = space
        self.own = isinstance(space, ModelSpace) and type(space).init is not ModelSpace.init
        self.given: dict[int, str] = {}
        """Layer by id of a tensor that `init` gave its value."""
        self.wrote: dict[str, Any] = {}
        """Tensors of the last module that it wrote without saying so, and what it returned."""

    def gives(self, path: str, module: nn.Module) -> bool:
        """Whether `init` gives a module its values."""
        self.wrote = {}
        if not self.own:
            return False
        assert isinstance(self.space, ModelSpace)
        tensors = own_tensors(module)
        before = {name: tensor._version for name, tensor in tensors.items()}
        returned = self.space.init(path, module)
        wrote = [name for name, tensor in tensors.items() if tensor._version != before[name]]
        if returned:
            self.given |= {id(tensors[name]): path for name in wrote}
        else:
            self.wrote = dict.fromkeys(wrote, returned)
        return bool(returned)

    def around(self, path: str, module: nn.Module, reset: Callable[[], Any]) -> None:
        """Call a reset of a module that `init` does not give its values.

        Raises:
            SpaceError: it writes over what `init` wrote, here or as that of another layer.
        """
        tensors = own_tensors(module) if self.given or self.wrote else {}
        known = {name: t._version for name, t in tensors.items() if name in self.wrote or id(t) in self.given}
        reset()
        for name in (name for name, version in known.items() if tensors[name]._version != version):
            whole, owner = f"{path}.{name}" if path else name, type(module).__name__
            if name in self.wrote:
                raise SpaceError(FORGOT.format(name=whole, returned=self.wrote[name], path=path))
            first = self.given[id(tensors[name])]
            raise SpaceError(TIED.format(first=first, name=whole, owner=owner, path=path))


class Losing:
    """What of that is lost, found while values are drawn.

    Args:
        memory: what each tensor of the space was given for its own, by the id of that one.
    """

    def __init__(self, space: nn.Module, tensors: list[Tensor], memory: Mapping[int, Tensor]) -> None:
        noted = _NOTED.pop(space, {})
        self.given = {
            id(memory[id(t)]): (memory[id(t)], noted[key])
            for t in tensors
            if noted and (key := t.untyped_storage()._cdata) in noted
        }
        self.reset: dict[int, int] = {}
        """By id of a tensor, its version when torch's own reset has written it last."""

    def around(self, reset: Callable[[], Any]) -> None:
        """Call a reset."""
        if not self.given or not _is_torchs(reset):
            reset()
            return
        before = {key: tensor._version for key, (tensor, _) in self.given.items()}
        reset()
        self.reset |= {k: t._version for k, (t, _) in self.given.items() if t._version != before[k]}

    def drawn_elsewhere(self) -> None:
        """Other processes have called all resets, which are torch's own."""
        self.reset |= {key: tensor._version for key, (tensor, _) in self.given.items()}

    def lost(self, tensor: Tensor) -> Given | None:
        """What was given to it and is not there now."""
        if id(tensor) not in self.given or self.reset.get(id(tensor)) != tensor._version:
            return None
        given = self.given[id(tensor)][1]
        return None if given.constant is not None and bool((tensor == given.constant).all()) else given


def refuse_lost(given: Given, path: str, attribute: str, kind: str, owner: str) -> None:
    """Raises:
    SpaceError: always.
    """
    name = f"{path}.{attribute}" if path else attribute
    raise SpaceError(LOST.format(kind=kind, name=name, owner=owner, where=given.where, path=path, attribute=attribute))


def _is_torchs(reset: Callable[[], Any]) -> bool:
    return getattr(reset, "__module__", "").startswith("torch.nn.")
