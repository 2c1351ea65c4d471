"""Balanced contiguous partition: the smallest possible heaviest part, by dynamic programming.

    best(i, k) = min over j < i of max(best(j, k-1), cost(j..i))

O(L^2 K) for L blocks and K workers; exact. Every worker gets at least one block.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from sennit.errors import UserError


def balanced_cuts(costs: Sequence[float], workers: int) -> list[int]:
    """Positions at which the second, third, ... worker begins.

    Args:
        costs: time of each block, in any unit.
        workers: number of parts.

    Raises:
        UserError: more workers than blocks.
    """
    n = len(costs)
    if workers > n:
        raise UserError(f"{workers} workers need at least as many blocks, the space has {n}; lower --workers to {n}")
    total = [0.0, *accumulate(costs)]
    best = [[float("inf")] * (n + 1) for _ in range(workers + 1)]
    start = [[0] * (n + 1) for _ in range(workers + 1)]
    best[0][0] = 0.0
    for k in range(1, workers + 1):
        for i in range(k, n - (workers - k) + 1):
            for j in range(k - 1, i):
                worst = max(best[k - 1][j], total[i] - total[j])
                if worst < best[k][i]:
                    best[k][i], start[k][i] = worst, j
    cuts: list[int] = []
    i = n
    for k in range(workers, 0, -1):
        i = start[k][i]
        cuts.append(i)
    return sorted(cuts[:-1])
