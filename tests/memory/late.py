"""A device whose copies are done only when somebody waits for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torch import Tensor

from sennit.memory.device import Copy, HostDevice


class LateDevice(HostDevice):
    """Bytes come when somebody waits for them; until then there is poison."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way: list[list[tuple[Tensor, Tensor]]] = []
        self.asked: Counter[int] = Counter()

    def fetch(self, into: Tensor, source: Tensor, after: Sequence[Copy]) -> Copy:
        for copy in after:
            self.finish(copy)
        into.fill_(0xFF)
        self.under_way.append([(into, source)])
        return len(self.under_way)

    def write(self, into: Sequence[Tensor], source: Sequence[Tensor], after: Sequence[Copy]) -> Copy:
        self.under_way.append(list(zip(into, source, strict=True)))
        return len(self.under_way)

    def mark(self) -> Copy:
        return 0

    def use(self, copy: Copy) -> None:
        self.finish(copy)

    def done(self, copy: Copy) -> bool:
        """The third time that it is asked."""
        self.asked[copy] += 1
        if copy and self.asked[copy] < 3:
            return not self.under_way[copy - 1]
        self.finish(copy)
        return True

    def finish(self, copy: Copy) -> None:
        if copy:
            for into, source in self.under_way[copy - 1]:
                into.copy_(source)
            self.under_way[copy - 1] = []
