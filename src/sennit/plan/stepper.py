"""`stepper`: who steps a group that several workers have gradients of. No torch.

    replicas 0 and 1, groups of one run     a  b  c  d  e
    number                                  0  1  2  3  4
    stepped by                              0  1  0  1  0      for every subnet

Each of them sends what it has to the one that steps, and nobody waits for one worker that steps everything. It is the
same one for every subnet, so that optimizer state, twice as large as the weights under Adam, stays where it is.
"""

from __future__ import annotations

from collections.abc import Collection


def stepper(workers: Collection[int], number: int) -> int:
    """Of the workers that run a group's first step, the one that steps it.

    Args:
        number: of the group.
    """
    held = sorted(set(workers))
    return held[number % len(held)]
