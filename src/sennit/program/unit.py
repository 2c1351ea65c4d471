"""`Unit`: a module that steps call, with what is known of its calls."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from sennit.program.sameness import Unknown, same_module
from sennit.supernet.drawless import hooked_everywhere, may_draw
from sennit.supernet.draws import draws_with_torch, hooked
from sennit.supernet.landing import Landing

MOST = 64
"""Combinations of shapes that are remembered of one kind; then all are forgotten."""


class Unit:
    """A module.

    Args:
        landings: of all modules that compute the same.

    Attributes:
        torch_only: it ran code of torch and sennit alone when it was first looked at, and no hooks since.
        draws: it may draw random numbers; false only if that was impossible then, and no hooks have come since.
        hooks: how many had been registered in this process when its own were last looked at.
    """

    __slots__ = ("draws", "hooks", "landings", "module", "torch_only")

    def __init__(self, module: nn.Module, landings: dict[Any, Landing] | None = None) -> None:
        self.module = module
        self.torch_only = draws_with_torch(module)
        self.draws = may_draw(module)
        self.look_again()  # those of all modules hang in none, and others may have come since the module was known
        self.landings = {} if landings is None else landings

    def look_again(self) -> None:
        """For hooks: somebody has hung some, somewhere."""
        self.hooks = RemovableHandle.next_id
        if self.torch_only and (hooked_everywhere() or any(map(hooked, self.module.modules()))):
            self.torch_only, self.draws = False, True

    def landing(self, values: Sequence[Any], setting: Hashable) -> Landing:
        """What is known of steady calls with such values, in training, of a module of torch's and sennit's code alone.

        Args:
            values: that the step reads.
            setting: device and precision.
        """
        key = (setting, *[(v.shape, v.dtype, v.requires_grad) if isinstance(v, Tensor) else v for v in values])
        known = self.landings.get(key)
        if known is None:
            if len(self.landings) >= MOST:
                self.landings.clear()
            known = self.landings[key] = Landing(len(values))
        return known


class Units:
    """The modules of a space, by path.

    Args:
        modules: all of them.
    """

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self.modules = modules
        self._units: dict[str, Unit] = {}
        self._kinds: dict[Hashable, dict[Any, Landing]] = {}

    def at(self, path: str) -> Unit:
        """The module at `path`."""
        known = self._units.get(path)
        if known is None:
            module = self.modules[path]
            known = self._units[path] = Unit(module, self._kinds.setdefault(_kind(module), {}))
        elif known.hooks != RemovableHandle.next_id:
            known.look_again()
        return known


def _kind(module: nn.Module) -> Hashable:
    """Equal for two modules only if their gradients lie alike."""
    try:
        same = same_module(module)
    except Unknown:
        return id(module)
    return same, tuple((p.shape, p.stride(), p.requires_grad) for p in module.parameters())
