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
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.open = False
        """Whether there is such a block."""
        self._parts: list[Part] = []
        self._groups: set[GroupStep] = set()
        self._after: list[Callable[[], None]] = []
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

    def step(
        self, group: GroupStep, grads: Mapping[str, Tensor], lr: float, after: Callable[[], None] | None = None
    ) -> None:
        """Step a group now or at the end of the block, and call `after` then."""
        if self._parts and (lr != self._lr or group in self._groups):
            self.take()
        self._lr = lr
        self._groups.add(group)
        self._parts += group.parts(grads)
        if after is not None:
            self._after.append(after)
        if not self.open:
            self.take()

    def take(self) -> None:
        """Take the steps that are due: before their slots are given to others, or read."""
        parts, after = self._parts, self._after
        self._parts, self._after = [], []
        self._groups.clear()
        if parts:
            self.optimizer.step(parts, self._lr)
        for call in after:
            call()
