"""`Choice`, what `LayerChoice`, `InputChoice` and `Repeat` have in common: a label and a list of options.

A choice does not hold a selection. The selection belongs to the arch of the subnet being recorded and is
found through `selected`, so that one model serves many subnets at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn

from sennit.errors import ArchError
from sennit.program.calls import place

Option = int | str | tuple[int, ...]
"""One legal value of a choice: index or key of a candidate, a depth, or a tuple of chosen inputs."""

Arch = Mapping[str, Any]
"""Flat and JSON-safe: `{label: index | key | depth | [indices]}`."""

_active: list[Mapping[str, Option]] = []


@contextmanager
def selecting(options: Mapping[str, Option]) -> Iterator[None]:
    """Within this context choices follow `options` (label to option, as `Choice.parse` returns them)."""
    _active.append(options)
    try:
        yield
    finally:
        _active.pop()


class Choice(nn.Module):
    """A place in a model where something is left open.

    Args:
        label: the key of this choice in an arch. Two choices with one label are one choice and always
            agree. Without a label, the module path becomes the label.
    """

    def __init__(self, label: str | None) -> None:
        super().__init__()
        if label is not None and not label:
            raise ArchError("a choice label must not be empty; leave it out to use the module path")
        self.given_label = label
        self.label = label or ""

    def options(self) -> tuple[Option, ...]:
        """All legal values, in a fixed order."""
        raise NotImplementedError

    def parse(self, value: Any) -> Option:
        """The option that `value` (as found in an arch, perhaps read from JSON) stands for.

        Raises:
            ArchError: naming the label, the value and what is legal.
        """
        raise NotImplementedError

    def encode(self, option: Option) -> Any:
        """`option` as JSON-safe value of an arch; `parse(encode(option)) == option`."""
        return list(option) if isinstance(option, tuple) else option

    def legal(self) -> str:
        """The legal values in words, for error messages."""
        shown = [repr(self.encode(o)) for o in self.options()[:24]]
        more = len(self.options()) - len(shown)
        return ", ".join(shown) + (f", ... ({more} more)" if more > 0 else "")

    def refuse(self, value: Any) -> ArchError:
        return ArchError(f"arch[{self.label!r}] = {value!r} is not an option of this choice; legal: {self.legal()}")

    def selected(self) -> Option:
        """The option of the arch being recorded."""
        if not _active:
            raise ArchError(
                f"choice {self.label or type(self).__name__!r} was called without an arch; "
                "call the model space itself: model(x, arch={...})"
            )
        if self.label not in _active[-1]:
            raise ArchError(
                f"{place()}: choice {self.label or type(self).__name__!r} was called, and the arch has no value for "
                "it: it is no part of the space, or of a candidate that is not chosen. Hold it in a module (an "
                "nn.ModuleList, no list), and call candidates only through their choice"
            )
        return _active[-1][self.label]

    def requires(self, child: str) -> tuple[Option, ...] | None:
        """The options of this choice under which its direct child module `child` runs; None: under all."""
        return None
