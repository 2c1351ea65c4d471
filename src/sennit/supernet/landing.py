"""`Landing`: how gradients land at what a step reads, looked at once instead of at every backward.

Where gradients must be settled (`Edge`), a hook looks at each. Calls from autograd into Python take some per cent of a
small network, and nearly always there is nothing to do. Code of torch and sennit alone makes gradients that lie alike
whenever it is given the same shapes and settled gradients of what it has made. So the first call of such a unit is
watched. Where a gradient has landed settled, the unit then reads the value itself, or a mere view where that has a sum
to finish:

    first     value ──▶ view ──▶ step      a hook at the view settles, and notes whether it had to
    then      value ───────────▶ step      if it had not, and nobody else uses the value, or the step does only once
              value ──▶ view ──▶ step      if it had not, and both use it: the step's own sum is finished at the view

A step that uses a value once, by one edge of the graph, has no sum of its own: one gradient comes, and is added when it
would have been behind a view, since autograd goes back strictly in the reverse order in which the graph was made.

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

    __slots__ = ("calls", "hooks", "once", "settled", "watching")

    def __init__(self, reads: int) -> None:
        self.settled: list[bool | None] = [None] * reads
        """Of each value read, whether its gradient lands settled; None: none has landed yet."""
        self.once: list[bool] | None = None
        """Of each value read, whether one edge alone leads to it; None: no graph has been seen yet."""
        self.calls = 0
        self.watching = True
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
        watch, once = not self.calls % EVERY, self.once
        self.watching = watch or once is None
        entered: list[Any] = []
        for i, value in enumerate(values):
            if not isinstance(value, Tensor):
                entered.append(value)
            elif not (value.requires_grad and torch.is_grad_enabled()):
                entered.append(in_place(value))
            elif self.settled[i] and not watch:
                placed = in_place(value)
                apart = placed is value and (uses[i] == FIRST or uses[i] == APART) and not (once and once[i])
                entered.append(value.view_as(value) if apart else placed)
            else:
                entered.append(enter(value, hooks=self.hooks[i]))
        return entered

    def look(self, entered: Sequence[Any], made: Any) -> None:
        """See how the graph of a call that was watched leads to what it was given.

        Args:
            entered: as `enter` gave it.
            made: by the unit.
        """
        if not isinstance(made, Tensor) or made.grad_fn is None:
            return
        ends = [(v.grad_fn, v.output_nr) if isinstance(v, Tensor) and v.grad_fn is not None else None for v in entered]
        counted = edges(made.grad_fn, [end for end in ends if end is not None])
        once = [end is not None and counted[end] == 1 for end in ends]
        known = self.once
        assert known is None or all(now or not before for now, before in zip(once, known, strict=True)), (
            "a value that a step used once before is used several times"
        )
        self.once = once if known is None else [now and before for now, before in zip(once, known, strict=True)]


def edges(start: Any, ends: Sequence[tuple[Any, int]]) -> dict[tuple[Any, int], int]:
    """How many edges of a graph lead to each of `ends`, which are a node and the number of one of its outputs.

    Args:
        start: the node from which to go back.
    """
    counted = dict.fromkeys(ends, 0)
    seen, left = {start}, [start]
    while left:
        for edge in left.pop().next_functions:
            node = edge[0]
            if edge in counted:
                counted[edge] += 1
            elif node is not None and node not in seen:
                seen.add(node)
                left.append(node)
    return counted
