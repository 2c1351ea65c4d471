"""`PerSubnet`: each subnet cut by what its own layers cost, so that its stretches are balanced (NASPipe, section 4.2).

    blocks      0     1     2     3            candidates of subnet 7 cost 1 1 1 3: cut before 3
    subnet 7    1     1     1 │   3            those of subnet 8 cost      3 1 1 1: cut before 1
    subnet 8    3 │   1     1     1

NASPipe mirrors layers to make that possible; here any worker of a host takes any layer from the host's store. Whoever
asks for a subnet's worker must have been told its layers (`tell`): all workers draw the same stream, so all cut alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sennit.plan.balance import balanced_cuts
from sennit.plan.plan import CutsPlan

Costs = Callable[[Sequence[str]], float]
"""Seconds of steps, by name."""


class PerSubnet(CutsPlan):
    """Contiguous stretches of blocks, the heaviest as light as can be, for each subnet.

    Args:
        costs: what steps take together.
    """

    def __init__(self, blocks: Sequence[str], workers: int, chunks: int, costs: Costs) -> None:
        super().__init__(blocks, [balanced_cuts([1.0] * len(blocks), workers * chunks)], workers, chunks)
        self.costs = costs
        self.static = False
        self.known: dict[int, list[int]] = {}

    def tell(self, seq_id: int, steps: Sequence[tuple[str, str]]) -> None:
        """Learn the steps of a subnet, each with its block."""
        of: dict[str, list[str]] = {block: [] for block in self.blocks}
        for step, block in steps:
            of[block].append(step)
        self.known[seq_id] = balanced_cuts([self.costs(of[block]) for block in self.blocks], self.workers * self.chunks)

    def forget(self, below: int) -> None:
        """Subnets below this one are done."""
        for seq_id in [y for y in self.known if y < below]:
            del self.known[seq_id]

    def cuts_of(self, seq_id: int) -> list[int]:
        return self.known[seq_id]
