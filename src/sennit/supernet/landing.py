"""`Landing`: how gradients land at what a step reads, looked at once instead of at every backward.

Where gradients must be settled (`Edge`), a hook looks at each. Calls from autograd into Python take some per cent of a
small network, and nearly always there is nothing to do. Code of torch and sennit alone makes gradients that lie alike
whenever it is given the same shapes and settled gradients of what it has made. So the first backward of such a unit is
watched. Where a gradient has landed settled, the unit then reads the value itself, or a mere view where others use it,
too:

    first     value ──▶ view ──▶ step      a hook at the view settles, and notes whether it had to
    then      value ───────────▶ step      if it had not, and nobody else uses the value
              value ──▶ view ──▶ step      if it had not, and others do: its own sum is finished at the view

One call in `EVERY` is watched again, and must find what was found before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sennit.supernet.edge import APART, FIRST, enter, in_place, watched

EVERY = 256


class Landing:
    """Of one unit's calls with certain shapes.

    Args:
        reads: how many values it reads.
    """

    __slots__ = ("calls", "hooks", "settled")

    def __init__(self, reads: int) -> None:
        self.settled: list[bool | None] = [None] * reads
        """Of each value read, whether its gradient lands settled; None: none has landed yet."""
        self.calls = 0
        self.hooks = [OrderedDict[int, Any]({0: watched(self._note(i))}) for i in range(reads)]

    def _note(self, i: int) -> Any:
        def note(settled: bool) -> None:
            known = self.settled[i]
            assert known is not True or settled, f"a gradient that landed settled before has not, at value {i}"
            self.settled[i] = settled and known is not False

        return note

    def enter(self, values: Sequence[Any], uses: Sequence[int]) -> list[Any]:
        """Values as the unit may use them; see `sennit.supernet.edge.enter`.

        Args:
            values: tensors, and sizes.
            uses: of each.
        """
        self.calls += 1
        watch = not self.calls % EVERY
        entered: list[Any] = []
        for i, value in enumerate(values):
            if not isinstance(value, Tensor):
                entered.append(value)
            elif not (value.requires_grad and torch.is_grad_enabled()):
                entered.append(in_place(value))
            elif self.settled[i] and not watch:
                placed = in_place(value)
                apart = placed is value and (uses[i] == FIRST or uses[i] == APART)
                entered.append(value.view_as(value) if apart else placed)
            else:
                entered.append(enter(value, hooks=self.hooks[i]))
        return entered
