"""What is put into modules beside tensors, and would not be there in the modules that workers run.

A method may be replaced in one module by a function that keeps hold of modules: workers run copies of modules, and a
copied function keeps hold of the same ones. What changes while initial values are drawn is lost: workers only run the
constructor.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from sennit.errors import SpaceError

GRAFTED = """{name!r} of {owner} is replaced in this one module, by a function that keeps hold of {held}:
{function}
Workers run copies of modules, and the copy would still call what the function was made with. Derive a class, or wrap
the module in another one:
    wrong:  old = m.{name};  m.{name} = lambda x: old(x) * 1.1
    right:  class Louder(nn.Linear):
                def {name}(self, x): return super().{name}(x) * 1.1"""

CHANGED = """{what} of {owner} {changed} while initial values were drawn (reset_parameters, or init of the space).
Only parameters and buffers get their values there: workers make their modules by the constructor alone, and so does a
run that goes on. Set it in __init__."""

KEEPS_HOLD = """
Its module is none of those that run. Either it is not registered (it is in a plain list: use nn.ModuleList), or a
function keeps hold of it: workers run copies of modules, and a function that was made in __init__
(self.f = lambda x: self.head(x), a hook that uses self) calls the modules it was made with. Make it a method; a hook is
given its module."""

_CACHES = ("_recordings", "_structure", "_binding")
_DRAWING = ("__init__", "init", "reset_parameters", "_reset_parameters")
"""Run before there are workers."""

_TABLES = ("_parameters", "_buffers", "_modules")
_PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, enum.Enum)


def refuse_grafted(space: nn.Module) -> None:
    """Raise if a method is replaced in one module by what cannot be copied with it.

    Raises:
        SpaceError: names the module and the function.
    """
    for path, module in space.named_modules():
        for name, held in vars(module).items():
            if name in (*_TABLES, *_DRAWING) or not callable(held) or not callable(getattr(type(module), name, None)):
                continue
            kept = next(_kept(held, set()), None)
            if kept is not None:
                raise SpaceError(
                    GRAFTED.format(name=name, owner=_owner(path, module), function=_place(held), held=kept)
                )


def _kept(held: Any, seen: set[int]) -> Iterator[str]:
    """What stays the same when a function is copied with the module that has it.

    A method's own module, and arguments of `partial`, are copied along.
    """
    if isinstance(held, partial):
        for part in (held.func, *held.args, *held.keywords.values()):
            yield from _kept(part, seen)
    elif isinstance(held, MethodType):
        yield from _kept(held.__func__, seen)
    elif isinstance(held, FunctionType) and id(held) not in seen:
        seen.add(id(held))
        cells = [cell.cell_contents for cell in held.__closure__ or () if _filled(cell)]
        for value in (*cells, *(held.__defaults__ or ()), *(held.__kwdefaults__ or {}).values()):
            yield from _module_in(value)
            yield from _kept(value, seen)


def _module_in(value: Any) -> Iterator[str]:
    if isinstance(value, nn.Module):
        yield f"a {type(value).__name__}"
    elif isinstance(value, Tensor):
        yield f"a tensor of shape {list(value.shape)}"
    elif isinstance(value, MethodType) and isinstance(value.__self__, nn.Module):
        yield f"{value.__name__} of a {type(value.__self__).__name__}"
    elif isinstance(value, partial):
        for part in (value.func, *value.args, *value.keywords.values()):
            yield from _module_in(part)
    elif isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _module_in(part)


def _filled(cell: Any) -> bool:
    try:
        return bool((cell.cell_contents,))
    except ValueError:  # a name that has no value yet
        return False


def _place(held: Any) -> str:
    while isinstance(held, partial | MethodType):
        held = held.func if isinstance(held, partial) else held.__func__
    code = getattr(held, "__code__", None)
    name = getattr(held, "__qualname__", type(held).__name__)
    return f"{code.co_filename}:{code.co_firstlineno} {name}" if code is not None else name


def _owner(path: str, module: nn.Module) -> str:
    return f"{type(module).__name__} at {path!r}" if path else "the space itself"


class Settings:
    """All that modules hold beside tensors, at one moment."""

    def __init__(self, space: nn.Module) -> None:
        self.alive: list[Any] = []
        """So that no other object gets the id of one that is gone."""
        self.held = {
            path: (module, {name: self._frozen(value) for name, value in _beside(module)})
            for path, module in space.named_modules()
        }

    def refuse_changed(self, space: nn.Module) -> None:
        """Raise if modules hold something else now.

        Raises:
            SpaceError: names the first.
        """
        now = Settings(space)
        for path, (module, after) in now.held.items():
            before = self.held.get(path)
            if before is None:
                raise SpaceError(CHANGED.format(what="the whole", owner=_owner(path, module), changed="came"))
            for name in dict.fromkeys([*before[1], *after]):
                if before[1].get(name, _Missing) != after.get(name, _Missing) and _may_be_read(space, name):
                    changed = "came" if name not in before[1] else "went" if name not in after else "changed"
                    what = "the hooks" if name.endswith("_hooks") else repr(name)
                    raise SpaceError(CHANGED.format(what=what, owner=_owner(path, module), changed=changed))

    def _frozen(self, value: Any) -> Any:
        if isinstance(value, _PLAIN):
            return (type(value), repr(value))
        if isinstance(value, list | tuple):
            return (type(value), tuple(map(self._frozen, value)))
        if isinstance(value, Mapping):
            return (type(value), tuple((self._frozen(key), self._frozen(item)) for key, item in value.items()))
        self.alive.append(value)
        return id(value)


def _may_be_read(space: nn.Module, name: str) -> bool:
    """Whether any code of the space's modules names an attribute, but for what draws initial values: that may count."""
    if name.endswith("_hooks") or name == "training":
        return True
    classes = {base for module in space.modules() for base in type(module).__mro__ if issubclass(base, nn.Module)}
    return any(
        name == attribute or name in _names(getattr(unwrapped, "__code__", None))
        for base in classes - {nn.Module}
        for attribute, held in vars(base).items()
        if attribute not in _DRAWING
        for unwrapped in [inspect.unwrap(getattr(held, "fget", None) or getattr(held, "__func__", held))]
    )


def _names(code: Any) -> set[str]:
    """Names and words in a function and in those inside it."""
    if not isinstance(code, CodeType):
        return set()
    words = {item for item in code.co_consts if isinstance(item, str)}
    return words.union(code.co_names, *map(_names, code.co_consts))


class _Missing:
    """In place of what is not there."""


def _beside(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Attributes, hooks among them; not the tables of tensors and modules, and not what is derived from a space."""
    for name, value in vars(module).items():
        if name not in (*_TABLES, *_CACHES) and not isinstance(value, set):
            yield name, value
