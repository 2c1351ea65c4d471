"""Values that a constructor gives to a layer which then gets others: refused, since they would be lost without a word.

    constructor   nn.init.zeros_(self.head.weight)      noted (`space/constructing.py`)
    drawing       head.reset_parameters()               torch's own: what was noted is lost, unless
                  reset_parameters of a user's, `init`  write it later, or it is the same constant

What is refused is told with its name and the line that wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from sennit.space.constructing import Given, taken

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


class Losing:
    """What constructors gave and is lost, found while values are drawn.

    Args:
        memory: what each tensor of the space was given for its own, by the id of that one.
    """

    def __init__(self, space: nn.Module, tensors: list[Tensor], memory: Mapping[int, Tensor]) -> None:
        noted = taken(space)
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


def _is_torchs(reset: Callable[[], Any]) -> bool:
    return getattr(reset, "__module__", "").startswith("torch.nn.")
