"""`PerSubnet`: each subnet cut by what its own layers cost, so that its stretches are balanced (NASPipe, section 4.2).

    blocks      0     1     2     3            layers of subnet 7 cost  1 1 1 3: cut before 3
    subnet 7    1     1     1 │   3            those of subnet 8        3 1 1 1: cut before 1
    subnet 8    3 │   1     1     1

NASPipe mirrors layers to make that possible; here any worker of a host takes any layer from the host's store. Whoever
asks for a subnet's worker must have been told its layers (`tell`), in the order of subnets: all workers draw the same
stream, so all cut alike. With `slack`, layers stay where the last subnet had them as far as balance allows
(`plan/sticky.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sennit.plan.balance import balanced_cuts
from sennit.plan.plan import CutsPlan
from sennit.plan.sticky import sticky_cuts

Amount = Callable[[Sequence[str]], float]
"""Seconds, or bytes, of steps, by name."""


class PerSubnet(CutsPlan):
    """Contiguous stretches of blocks, the heaviest as light as can be, for each subnet.

    Args:
        costs: what steps take together, in seconds.
        sizes: bytes of their parameters and state; nothing is kept in place without it.
        slack: how much heavier than need be the heaviest stretch may be to move less, as a part of it.
    """

    def __init__(
        self, blocks: Sequence[str], workers: int, chunks: int, costs: Amount, sizes: Amount | None = None,
        slack: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(blocks, [balanced_cuts([1.0] * len(blocks), workers * chunks)], workers, chunks)
        self.costs, self.sizes, self.slack = costs, sizes, slack
        self.static = False
        self.known: dict[int, list[int]] = {}
        self.last: dict[str, int] = {}
        """Step to the worker that had it last."""

    def tell(self, seq_id: int, steps: Sequence[tuple[str, str]]) -> None:
        """Learn the steps of a subnet, each with its block."""
        if seq_id in self.known:
            return
        of: dict[str, list[str]] = {block: [] for block in self.blocks}
        for step, block in steps:
            of[block].append(step)
        held = [of[block] for block in self.blocks]
        costs = [self.costs(names) for names in held]
        self.known[seq_id] = self.cut(costs, held)
        if self.sizes is not None:
            for block, names in of.items():
                self.last.update(dict.fromkeys(names, self.worker(seq_id, 0, block)))

    def cut(self, costs: Sequence[float], held: Sequence[Sequence[str]]) -> list[int]:
        n, sizes = self.workers * self.chunks, self.sizes
        if sizes is None:
            return balanced_cuts(costs, n)

        def moved(position: int, stretch: int) -> float:
            worker = stretch % self.workers
            return sizes([step for step in held[position] if self.last.get(step, worker) != worker])

        return sticky_cuts(costs, n, moved, self.slack)

    def forget(self, below: int) -> None:
        """Subnets below this one are done."""
        for seq_id in [y for y in self.known if y < below]:
            del self.known[seq_id]

    def cuts_of(self, seq_id: int) -> list[int]:
        return self.known[seq_id]
