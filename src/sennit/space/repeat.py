"""`Repeat`: a chain of variable depth."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import nn

from sennit.errors import SpaceError
from sennit.space.choice import Choice, Option


class Repeat(Choice):
    """The first `depth` of a chain of blocks, each called with what the one before returned.

    Blocks are shared by prefix: depth 2 uses blocks 0 and 1, depth 3 the same two and block 2. Blocks below
    the smallest depth belong to every subnet.

    Args:
        block: a module, copied for each place, or a factory called with the index of the place.
        depth: a fixed depth, or `(min, max)`, both included.
        label: see `Choice`.

    Raises:
        SpaceError: a depth below 0 or a range the wrong way round.
    """

    def __init__(
        self,
        block: nn.Module | Callable[[int], nn.Module],
        depth: int | tuple[int, int],
        label: str | None = None,
    ) -> None:
        super().__init__(label)
        low, high = (depth, depth) if isinstance(depth, int) else (int(depth[0]), int(depth[1]))
        if not 0 <= low <= high or high < 1:
            raise SpaceError(f"0 <= min <= max and max >= 1 must hold for the depth of a Repeat, got {depth!r}")
        self.low, self.high = low, high
        for i in range(high):
            made = copy.deepcopy(block) if isinstance(block, nn.Module) else block(i)
            if not isinstance(made, nn.Module):
                raise SpaceError(f"the factory of a Repeat must return a module, got {made!r} for index {i}")
            self.add_module(str(i), made)

    def options(self) -> tuple[Option, ...]:
        return tuple(range(self.low, self.high + 1))

    def parse(self, value: Any) -> Option:
        if type(value) is not int or not self.low <= value <= self.high:
            raise self.refuse(value)
        return value

    def requires(self, child: str) -> tuple[Option, ...] | None:
        return tuple(depth for depth in range(self.low, self.high + 1) if depth > int(child))

    def forward(self, x: Any) -> Any:
        depth = self.selected()
        assert isinstance(depth, int)
        for i in range(depth):
            x = getattr(self, str(i))(x)
        return x

    def extra_repr(self) -> str:
        return f"depth=({self.low}, {self.high}), label={self.label!r}"
