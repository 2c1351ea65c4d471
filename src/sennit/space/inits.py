"""`Inits`: what `init` of a space writes, and that no reset writes over it without a word.

    init(name, module) ── True ──▶ written: kept, unless a reset of another layer draws a tied parameter anew
                       └─ False ─▶ reset_parameters of the layer; what init wrote all the same is lost if that writes it

Both are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from sennit.errors import SpaceError
from sennit.space.model_space import ModelSpace

FORGOT = """init of the space writes {name!r}, and returns {returned!r} for {path!r}: so the layer got its values from
its own reset_parameters, and what init wrote is lost. Return True where init gives a layer all its values"""

TIED = """init of the space gives {first!r} its values, and {name!r} is one of them, tied: {owner} has drawn it anew
by its reset_parameters, so what init wrote is lost. Return True for {path!r} as well:
    if name in ({first!r}, {path!r}):"""


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


def own_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers of a module without those below it, by name."""
    held = {**module._parameters, **module._buffers}
    return {name: tensor for name, tensor in held.items() if tensor is not None}
