"""A subnet as the simulator and the chains see it: one piece per run."""

from __future__ import annotations

from collections.abc import Sequence

from sennit.profile.costs import Costs
from sennit.program.cut import Run
from sennit.program.groups import Groups
from sennit.simulate.load import Piece


def pieces_of(
    runs: Sequence[Run], spread: Sequence[tuple[int, ...]], groups: Groups, kept: frozenset[str], waits: Costs
) -> list[Piece]:
    """The pieces of a subnet, in program order.

    Args:
        spread: of each run, the worker of each micro-batch.
        kept: groups that do not train.
        waits: what steps take.
    """
    owned: set[str] = set()
    pieces: list[Piece] = []
    for run in runs:
        # a group belongs to the first run that reads it, which steps it
        read = {group for step in run.steps for group in groups.of_step(step)[0]} - kept - owned
        owned |= read
        sources = {arrival.source for arrival in run.arrivals}
        if run.has_loss:  # whatever nobody reads ends there, too
            sources |= {r for r in range(run.index) if not runs[r].departures}
        cost = waits.of_steps(run.steps)
        where = spread[run.index]
        differs = where if len(set(where)) > 1 else ()
        moved = {group for step in run.steps for group in groups.of_step(step)[1]} - kept
        pieces.append(
            Piece(
                where[0], tuple(sorted(read)), cost, spread=differs, sources=tuple(sorted(sources)),
                moves=tuple(sorted(moved)),
            )
        )  # fmt: skip
    return pieces
