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
    found: list[Link] = []
    for _, stretch in groupby(pieces, key=lambda piece: piece.worker):
        held = list(stretch)
        forward = [piece.cost.forward for piece in held]
        backward = [piece.cost.input if split else piece.cost.whole for piece in held]
        for piece, f, b in zip(held, forward, backward, strict=True):
            weight = piece.cost.weight if split else 0.0
            versions = [reads(group) for group in piece.groups]
            n = len(piece.workers)  # micro-batches are dealt out among them
            found.append(Link(f, b, weight, sum(forward) / n, sum(backward) / n, piece.groups, versions))
    return found
