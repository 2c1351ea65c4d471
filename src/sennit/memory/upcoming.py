"""`Upcoming`: which slots a worker will use next, from the subnets that it has let in or that were drawn. No torch.

    subnet 7   run 2: a b    run 5: c          forwards that have not run, in the order of subnets and runs:
    subnet 8   run 2: d b    run 5: e          a b c d b e f b; the next use of b is in (7, 2), of e in (8, 5)
    drawn 9    f b                             f is not fetched ahead yet, but sooner used than what nobody uses

The order of subnets is what causal order tends to; readiness may reorder neighbours, which costs an early fetch and no
more. A slot of a live graph is pinned, so backwards need no prediction.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable, Iterator, Mapping

from sennit.memory.eviction import Key

Use = tuple[int, int]
"""Subnet and run."""

RUNS = 1 << 20
"""More than a subnet has runs."""


class Upcoming:
    """Of one worker."""

    def __init__(self) -> None:
        self.keys: dict[Use, tuple[Key, ...]] = {}
        self.of: dict[Key, list[Use]] = {}
        self.drawn: dict[int, tuple[Key, ...]] = {}

    def foretell(self, seq_id: int, keys: Iterable[Key]) -> None:
        """A subnet is drawn, later than all before it; it is not let in yet."""
        self.drawn[seq_id] = tuple(keys)
        for key in self.drawn[seq_id]:
            insort(self.of.setdefault(key, []), (seq_id, 0))

    def admit(self, seq_id: int, runs: Mapping[int, Iterable[Key]]) -> None:
        """A subnet is let in, later than all before it, and before those that are only drawn.

        Args:
            runs: of this worker, with the slots that each will read.
        """
        self._gone((seq_id, 0), self.drawn.pop(seq_id, ()))
        for run in sorted(runs):
            use = seq_id, run
            self.keys[use] = tuple(runs[run])
            for key in self.keys[use]:
                insort(self.of.setdefault(key, []), use)

    def begun(self, seq_id: int, run: int) -> None:
        """All forwards of a run have begun: what they read is pinned."""
        self._gone((seq_id, run), self.keys.pop((seq_id, run), ()))

    def _gone(self, use: Use, keys: Iterable[Key]) -> None:
        for key in keys:
            uses = self.of[key]
            uses.remove(use)
            if not uses:
                del self.of[key]

    def next_use(self, key: Key) -> float:
        """How late a slot is used next, as a number to compare; infinite if nothing is known."""
        uses = self.of.get(key)
        return uses[0][0] * RUNS + uses[0][1] if uses else math.inf

    def coming(self) -> Iterator[tuple[Use, tuple[Key, ...]]]:
        """Forwards of subnets let in that have not begun, next first."""
        yield from self.keys.items()
