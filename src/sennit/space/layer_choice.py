"""`LayerChoice`: one of several modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from sennit.errors import SpaceError
from sennit.space.choice import Choice, Option


class LayerChoice(Choice):
    """One of several candidate modules, called with whatever arguments the place is called with.

    Args:
        candidates: a list (an arch holds the index) or a dict (an arch holds the key). A candidate given as
            a list or tuple of modules becomes an `nn.Sequential`. Candidates may contain further choices.
        label: see `Choice`.

    Raises:
        SpaceError: no candidates, a candidate that is no module, or a key that cannot name a module.
    """

    def __init__(self, candidates: Sequence[Any] | Mapping[str, Any], label: str | None = None) -> None:
        super().__init__(label)
        self.keyed = isinstance(candidates, Mapping)
        items = list(candidates.items()) if isinstance(candidates, Mapping) else list(enumerate(candidates))
        if not items:
            raise SpaceError("LayerChoice needs at least one candidate, got none")
        self.names: tuple[Option, ...] = tuple(key for key, _ in items)
        for key, candidate in items:
            if self.keyed and (not isinstance(key, str) or not key or "." in key or hasattr(self, key)):
                raise SpaceError(
                    f"LayerChoice key {key!r} cannot name a module: a string, no dots, not empty, no attribute name"
                )
            self.add_module(str(key), self._as_module(key, candidate))

    @staticmethod
    def _as_module(key: object, candidate: Any) -> nn.Module:
        if isinstance(candidate, list | tuple) and all(isinstance(part, nn.Module) for part in candidate):
            return nn.Sequential(*candidate)
        if not isinstance(candidate, nn.Module):
            raise SpaceError(
                f"LayerChoice candidate {key!r} is {candidate!r}, not a module; "
                "give a module, or a list of modules for a sequence"
            )
        return candidate

    def options(self) -> tuple[Option, ...]:
        return self.names

    def parse(self, value: Any) -> Option:
        if type(value) is not (str if self.keyed else int) or value not in self.names:  # 1.0 == True == 1
            raise self.refuse(value)
        return value

    def requires(self, child: str) -> tuple[Option, ...] | None:
        return (child if self.keyed else int(child),)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, str(self.selected()))(*args, **kwargs)

    def extra_repr(self) -> str:
        return f"label={self.label!r}"
