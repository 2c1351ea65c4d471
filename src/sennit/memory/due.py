"""`Due`: steps of several groups, taken together at the end of a block.

    with store.together():
        store.step("a", ...)      noted
        store.step("b", ...)      noted
                                  one step of torch's optimizer for both

On a GPU the launches of a step do not depend on how many tensors it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor

from sennit.memory.group_step import GroupStep, Optimizer, Part


class Due:
    """Of one store.

    Args:
        optimizer: of all its groups.
        then: called when some have been taken.
    """

    def __init__(self, optimizer: Optimizer, then: Callable[[], None] | None = None) -> None:
        self.optimizer, self.then = optimizer, then
        self.open = False
        """Whether there is such a block."""
        self._parts: list[Part] = []
        self._groups: set[GroupStep] = set()
        self._lr = 0.0

    @contextmanager
    def together(self) -> Iterator[None]:
        """Steps inside may be put off until the end."""
        self.open = True
        try:
            yield
            self.take()
        finally:
            self.open = False

    def step(self, group: GroupStep, grads: Mapping[str, Tensor], lr: float) -> None:
        """Step a group now or at the end of the block."""
        self.before(group, lr)
        self._lr = lr
        self._groups.add(group)
        self._parts += group.parts(grads)
        if not self.open:
            self.take()

    def before(self, group: GroupStep, lr: float) -> None:
        """Take what must be taken before a step of this group with this learning rate."""
        if self._groups and (lr != self._lr or group in self._groups):
            self.take()

    def take(self) -> None:
        """Take the steps that are due: before their slots are given to others, or read."""
        parts, self._parts = self._parts, []
        if not self._groups:
            return
        self._groups.clear()
        if parts:
            self.optimizer.step(parts, self._lr)
        if self.then is not None:
            self.then()
