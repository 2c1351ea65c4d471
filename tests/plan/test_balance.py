"""Balanced cuts against brute force."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit.errors import UserError
from sennit.plan.balance import balanced_cuts


def heaviest(costs: list[float], cuts: list[int]) -> float:
    ends = [0, *cuts, len(costs)]
    return max(sum(costs[a:b]) for a, b in pairwise(ends))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(1, 5))
def test_no_other_partition_is_lighter(costs: list[int], workers: int) -> None:
    if workers > len(costs):
        return
    cuts = balanced_cuts(costs, workers)
    assert len(cuts) == workers - 1
    assert all(a < b for a, b in zip([0, *cuts], [*cuts, len(costs)], strict=True)), "every worker has a block"
    best = min(heaviest(costs, list(c)) for c in combinations(range(1, len(costs)), workers - 1))
    assert heaviest(costs, cuts) == best


def test_more_workers_than_blocks() -> None:
    with pytest.raises(UserError, match="3 workers need at least as many blocks, the space has 2"):
        balanced_cuts([1.0, 1.0], 3)
