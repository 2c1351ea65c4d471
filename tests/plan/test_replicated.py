"""Stages of several workers: who has which micro-batch."""

from __future__ import annotations

from collections import Counter
from math import gcd

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sennit.errors import UserError
from sennit.plan.plan import CutsPlan, PlanEpoch, Plans
from sennit.plan.replicated import Replicated, depth_of, replica_of


@st.composite
def replicated(draw: st.DrawFn) -> Replicated:
    """Any plan of contiguous stages, one for all subnets or a cycle of some, and any blocks that stay single."""
    n, depth, chunks = draw(st.integers(1, 12)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    blocks = [f"b{i}" for i in range(n)]
    cut = st.lists(st.integers(0, n), min_size=depth * chunks - 1, max_size=depth * chunks - 1).map(sorted)
    cuts = draw(st.lists(cut, min_size=1, max_size=3))
    single = draw(st.sets(st.sampled_from(blocks)))
    costs = draw(st.none() | st.lists(st.floats(0.0, 9.0), min_size=n, max_size=n))
    plan = CutsPlan(blocks, cuts, depth, chunks)
    return Replicated(plan, draw(st.integers(1, 4)), draw(st.integers(1, 6)), single, costs)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(replicated())
def test_every_micro_batch_of_a_block_has_one_worker(plan: Replicated) -> None:
    plans = Plans([PlanEpoch(0, plan)])
    for y in range(5):
        of_stretch: dict[int, set[tuple[int, ...]]] = {}
        last = -1
        for i, block in enumerate(plan.stages.blocks):
            spread = plans.spread(y, block, plan.micro_batches)
            assert len(spread) == plan.micro_batches
            stage = plan.stages.worker(y, 0, block)
            assert all(0 <= worker < plan.workers and worker // plan.replicas == stage for worker in spread)
            if plan.single[i]:
                assert len(set(spread)) == 1
                assert spread == plans.spread(y + len(plan.stages.cuts), block, plan.micro_batches), "for every subnet"
            else:
                counts = Counter(spread)
                assert len(counts) == min(plan.replicas, plan.micro_batches)
                assert max(counts.values()) - min(counts.values()) <= 1
            stretch = plan.stretch(y, 0, block)
            assert stretch >= last, "in program order"
            last = stretch
            of_stretch.setdefault(stretch, set()).add(spread)
        assert all(len(found) == 1 for found in of_stretch.values()), "a stretch is run in one piece"


@settings(max_examples=100, deadline=None, derandomize=True)
@given(replicated())
def test_single_blocks_in_a_row_keep_all_replicas_busy(plan: Replicated) -> None:
    for y in range(len(plan.stages.cuts)):
        rows: dict[int, list[str]] = {}
        for block in plan.stages.blocks:
            rows.setdefault(plan.stages.stretch(y, 0, block), []).append(block)
        for blocks in rows.values():
            if all(plan.single[plan.stages.position[block]] for block in blocks):
                used = {plan.worker(y, 0, block) for block in blocks}
                assert len(used) == min(plan.replicas, len(blocks))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(1, 8), st.integers(1, 6))
def test_replicas_take_turns_at_the_first_micro_batch_and_share_all(m: int, replicas: int) -> None:
    """The worker of micro-batch 0 steps; whoever follows whom, all get as much."""
    first = Counter(replica_of(y, 0, m, replicas) for y in range(replicas * 5))
    assert len(first) == (replicas if not m % replicas else replicas // gcd(m, replicas))
    assert len(set(first.values())) == 1
    every = Counter(replica_of(y, j, m, replicas) for y in range(replicas) for j in range(m))
    assert every == dict.fromkeys(range(replicas), m)


def test_the_drawings_of_the_module() -> None:
    plan = Replicated(CutsPlan(list("xyz"), [[1, 2]], 3), 2, 4)
    for stage, block in enumerate("xyz"):
        assert [plan.worker(0, j, block) for j in range(4)] == [2 * stage + j % 2 for j in range(4)]
    plan = Replicated(CutsPlan([*"abNcO", "P"], [[]], 1), 2, 4, {"N", "O", "P"})
    assert [plan.placed(0, block)[1] for block in "abNcOP"] == [-1, -1, 0, -1, 1, 0]
    assert [plan.stretch(0, 0, block) for block in "abNcOP"] == [0, 0, 1, 2, 3, 4]


def test_what_does_not_come_out_even() -> None:
    assert depth_of(6, 3) == 2
    with pytest.raises(UserError, match=r"--replicas 4.*got 6; use --replicas 1 or 2 or 3 or 6, or --workers 8"):
        depth_of(6, 4)
    with pytest.raises(UserError, match="at least 1, got 0"):
        depth_of(6, 0)
    with pytest.raises(UserError, match="no plan places 'q'"):
        Replicated(CutsPlan(["a"], [[]], 1), 2, 1).worker(0, 0, "q")
