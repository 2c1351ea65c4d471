"""Balanced partition that moves little: of the cuts that are nearly as balanced as can be, those that move the least.

    layers        a   b   c   d         each costs 1; they were on workers 0 0 0 1 and have 1 2 4 1 bytes
    slack 0       a   b │ c   d         2 and 2, and c moves: 4 bytes
    slack .5      a   b   c │ d         3 and 1, and nothing moves

    least(i, k) = min over j < i with cost(j..i) <= (1 + slack) x optimum of  least(j, k-1) + moved(j..i, to worker k)

The heaviest stretch decides how long a subnet takes at best, bytes moved what the links carry for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

from sennit.plan.balance import balanced_cuts


def sticky_cuts(costs: Sequence[float], stretches: int, moved: Callable[[int, int], float], slack: float) -> list[int]:
    """Positions at which the second, third, ... stretch begins.

    Args:
        costs: of each block.
        stretches: how many, each of at least one block.
        moved: bytes to move if a block (its position) is in a stretch (its number).
        slack: how much heavier than the lightest possible the heaviest stretch may be, 0 for not at all.

    Raises:
        UserError: more stretches than blocks.
    """
    lightest = balanced_cuts(costs, stretches)
    n, total = len(costs), [0.0, *accumulate(costs)]
    limit = max(total[b] - total[a] for a, b in pairwise([0, *lightest, n])) * (1.0 + slack)
    limit += 1e-9 * total[n]  # sums in another order
    best, start = [0.0] + [math.inf] * n, list[list[int]]()
    for k in range(stretches):
        bytes_before = [0.0, *accumulate(moved(i, k) for i in range(n))]
        now, came = [math.inf] * (n + 1), [0] * (n + 1)
        for i in range(k + 1, n - (stretches - k - 1) + 1):
            for j in range(i - 1, k - 1, -1):
                if total[i] - total[j] > limit:
                    break
                least = best[j] + bytes_before[i] - bytes_before[j]
                if least < now[i]:
                    now[i], came[i] = least, j
        best = now
        start.append(came)
    cuts: list[int] = []
    i = n
    for came in reversed(start):
        i = came[i]
        cuts.append(i)
    return sorted(cuts[:-1])
