"""How a space is cut, and what its subnets cost."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sennit.simulate.space_load import SpaceLoad, even_sizes


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 7))
def test_sizes_are_even_for_workers_and_for_stages(blocks: int, workers: int, chunks: int) -> None:
    assume(workers * chunks <= blocks)
    sizes = even_sizes(blocks, workers, chunks)
    totals = [sum(sizes[k::workers]) for k in range(workers)]
    assert sum(sizes) == blocks and len(sizes) == workers * chunks
    assert min(sizes) >= 1 and max(sizes) - min(sizes) <= 1 and max(totals) - min(totals) <= 1


def test_the_drawing_of_its_docstring() -> None:
    assert even_sizes(48, 8, 4) == (1, 2) * 4 + (2, 1) * 4 + (1, 2) * 4 + (2, 1) * 4


@pytest.mark.parametrize(
    ("release", "joined", "runs"),
    [("layer", 1, [[n] for n in range(16)]), ("layer", 2, [[n, n + 1] for n in range(0, 16, 2)]),
     ("layer", 3, [[0, 1, 2], [3], [4, 5, 6], [7], [8, 9, 10], [11], [12, 13, 14], [15]]),
     ("stage", 1, [list(range(n, n + 4)) for n in range(0, 16, 4)])],
)  # fmt: skip
def test_runs(release: str, joined: int, runs: list[list[int]]) -> None:
    load = SpaceLoad(
        blocks=16, candidates=2, workers=4, micro_batches=2, subnets_wanted=1, release=release, joined=joined,  # type: ignore[arg-type]
        out_bytes=8.0, held_bytes=6.0, swap_bytes=4.0,
    )  # fmt: skip
    assert [layers for _, layers in load.runs] == runs
    pieces = next(load.subnets())
    for piece, layers in zip(pieces, runs, strict=True):
        assert piece.worker == layers[0] // 4
        assert [group.split(".")[0] for group in piece.groups] == [str(layer) for layer in layers]
        assert piece.cost.forward == pytest.approx(len(layers) * 4 / 16 / 2)
        assert (piece.out_bytes, piece.held_bytes, piece.swap_bytes) == (4.0, 3.0 * len(layers), 4.0 * len(layers))


def test_a_perfect_pipeline_takes_three_units_a_subnet() -> None:
    load = SpaceLoad(blocks=12, candidates=3, workers=4, micro_batches=3, subnets_wanted=5, chunks=3)
    for pieces in load.subnets():
        work = [0.0] * 4
        for piece in pieces:
            work[piece.worker] += 3 * (piece.cost.forward + piece.cost.whole)
        assert work == pytest.approx([3.0] * 4)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(1, 2))
def test_replicas_share_the_micro_batches_of_a_stage(depth: int, replicas: int, m: int, chunks: int) -> None:
    """The same stages as of `depth` workers, and the same work for every worker over as many subnets as replicas."""
    load = SpaceLoad(
        blocks=12, candidates=2, workers=depth * replicas, replicas=replicas, micro_batches=m, subnets_wanted=replicas,
        chunks=chunks,
    )  # fmt: skip
    alone = SpaceLoad(blocks=12, candidates=2, workers=depth, micro_batches=m, subnets_wanted=1, chunks=chunks)
    assert load.stages == alone.stages
    work = [0.0] * load.workers
    for pieces in load.subnets():
        for piece, like in zip(pieces, next(alone.subnets()), strict=True):
            for j in range(m):
                assert piece.where(j) // replicas == like.worker
                work[piece.where(j)] += piece.cost.forward + piece.cost.whole
    assert work == pytest.approx([3.0 * replicas] * load.workers)
