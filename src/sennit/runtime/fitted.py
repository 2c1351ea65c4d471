"""`Fitted`: what steps take, found from what runs of them took.

A task runs some steps, and its span tells their sum. The same step is in tasks of many subnets, beside other
candidates, so the parts can be told apart as far as that goes:

    run 1 of subnet 0   stem + big + mid    = 14 ms        big   8
    run 1 of subnet 1   stem + mid + skip   =  6 ms   ──▶  mid   4    stem 2
    run 1 of subnet 2   stem + big + skip   = 10 ms        skip  0

Each round gives every step the mean of its parts of what was seen, in proportion to what is held so far (the EM
iteration for sums of Poisson variables, of Shepp and Vardi 1982). Steps that always occur together keep their
proportion. A mean per block would hide that candidates differ, and with them the stages of one subnet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sennit.program.step import Step
from sennit.simulate.load import Cost

ROUNDS = 200


def fitted(sums: Sequence[float], parts: Sequence[Sequence[str]], start: Mapping[str, float]) -> dict[str, float]:
    """Seconds of each name.

    Args:
        sums: seconds of each observation.
        parts: the names that it is the sum of.
        start: positive, of every name: how names that always occur together share.
    """
    names = sorted({name for held in parts for name in held})
    number = {name: i for i, name in enumerate(names)}
    of = np.array([number[name] for held in parts for name in held], dtype=np.int64)
    row = np.array([i for i, held in enumerate(parts) for _ in held], dtype=np.int64)
    seen, found = np.bincount(of, minlength=len(names)), np.array([start[name] for name in names])
    told = np.array(sums, dtype=np.float64)
    for _ in range(ROUNDS if len(of) else 0):
        total = np.bincount(row, weights=found[of], minlength=len(told))
        ratio = np.divide(told, total, out=np.zeros_like(told), where=total > 0)
        found = found * np.bincount(of, weights=ratio[row], minlength=len(names)) / seen
    return dict(zip(names, found.tolist(), strict=True))


@dataclass(frozen=True)
class Fitted:
    """Costs by step.

    Attributes:
        steps: name to cost of one micro-batch.
        blocks: the mean over the steps of a block that were seen, for others.
    """

    steps: Mapping[str, Cost]
    blocks: Mapping[str, Cost]

    def of_steps(self, steps: Iterable[Step]) -> Cost:
        """Of steps that are run in one piece."""
        free = Cost(0.0, 0.0, 0.0, 0.0)
        costs = [self.steps.get(step.name) or self.blocks.get(step.block, free) for step in steps]
        return Cost(*(sum(column) for column in zip(*costs, strict=True))) if costs else free
