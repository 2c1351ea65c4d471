"""`chain_links`: a subnet of a load, as `Chains` wants it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from sennit.schedule.chains import Link
from sennit.simulate.load import Piece


def chain_links(pieces: Sequence[Piece], reads: Callable[[str], int], *, split: bool) -> list[Link]:
    """What chains are told of a subnet.

    Args:
        reads: group to the version that the subnet reads.
        split: backward as I and W.
    """
    found: list[tuple[float, float, float, float, float]] = []
    for _, stretch in groupby(pieces, key=lambda piece: piece.worker):
        costs = [
            (c.forward, c.input, c.weight) if split else (c.forward, c.whole, 0.0)
            for c in (piece.cost for piece in stretch)
        ]
        found += [(*cost, sum(f for f, _, _ in costs), sum(b + w for _, b, w in costs)) for cost in costs]
    return [
        Link(*costs, piece.groups, [reads(group) for group in piece.groups])
        for costs, piece in zip(found, pieces, strict=True)
    ]
