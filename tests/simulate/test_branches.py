"""Runs that are no chain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from sennit.schedule.csp import CspOrder
from sennit.simulate.engine import Simulation
from sennit.simulate.load import Cost, Piece
from sennit.supernet.sync import CspSync, Shared
from sennit.trace.span import Span

ONE = Cost(1.0, 2.0, 1.0, 1.0)


class Listed:
    """One subnet."""

    workers, micro_batches = 2, 1

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces

    def subnets(self) -> Iterator[Sequence[Piece]]:
        yield self.pieces


def spans(pieces: Sequence[Piece]) -> dict[str, tuple[float, float]]:
    """Run and kind to begin and end."""
    found: list[Span] = []
    sync = CspSync((), Shared("strict"))
    Simulation(Listed(pieces), [CspOrder(), CspOrder()], sync, 1, watch=found.append).run()
    return {f"{span.run}{span.kind}": (span.start, span.end) for span in found}


def test_the_drawing() -> None:
    """Encoder and embedding side by side, then the decoder:

    worker 0   0F .  .  .  0B 0B
    worker 1   1F 2F 2B 2B 1B 1B
    """
    pieces = [
        Piece(0, ("a",), ONE, sources=()),
        Piece(1, ("b",), ONE, sources=()),
        Piece(1, ("c",), ONE, sources=(0, 1)),
    ]
    assert spans(pieces) == {"0F": (0, 1), "1F": (0, 1), "2F": (1, 2), "2B": (2, 4), "0B": (4, 6), "1B": (4, 6)}


def test_a_value_read_twice_waits_for_both_gradients() -> None:
    """0 ──▶ 1 ──▶ 2, and 0 ──▶ 2: the backward of 0 comes last."""
    pieces = [
        Piece(0, ("a",), ONE, sources=()), Piece(1, ("b",), ONE, sources=(0,)), Piece(0, ("c",), ONE, sources=(0, 1)),
    ]  # fmt: skip
    assert spans(pieces)["0B"] == (7, 9)


def test_a_chain_spelled_out_is_the_chain() -> None:
    told = [Piece(r % 2, (f"g{r}",), ONE, sources=(r - 1,) if r else ()) for r in range(5)]
    assert spans(told) == spans([Piece(r % 2, (f"g{r}",), ONE) for r in range(5)])


def test_a_run_that_nobody_reads_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="nobody reads"):
        spans([Piece(0, ("a",), ONE, sources=()), Piece(1, ("b",), ONE, sources=())])
