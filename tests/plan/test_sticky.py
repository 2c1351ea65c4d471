"""Sticky cuts against brute force."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plan.test_balance import heaviest

from sennit.errors import UserError
from sennit.plan.balance import balanced_cuts
from sennit.plan.sticky import sticky_cuts

LAYERS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=8)
"""Cost, bytes, and the worker that had it last."""


def bytes_moved(layers: list[tuple[int, int, int]], cuts: list[int]) -> int:
    ends = [0, *cuts, len(layers)]
    return sum(size for k, (a, b) in enumerate(pairwise(ends)) for _, size, last in layers[a:b] if last != k)


@given(LAYERS, st.integers(1, 4), st.sampled_from([0.0, 0.1, 0.5, 3.0]))
def test_no_cut_within_the_slack_moves_less(layers: list[tuple[int, int, int]], workers: int, slack: float) -> None:
    if workers > len(layers):
        return
    costs = [cost for cost, _, _ in layers]
    cuts = sticky_cuts(costs, workers, lambda i, k: layers[i][1] * (layers[i][2] != k), slack)
    limit = heaviest(costs, balanced_cuts(costs, workers)) * (1 + slack) + 1e-6
    assert heaviest(costs, cuts) <= limit
    every = combinations(range(1, len(layers)), workers - 1)
    least = min(bytes_moved(layers, list(c)) for c in every if heaviest(costs, list(c)) <= limit)
    assert bytes_moved(layers, cuts) == least


@pytest.mark.parametrize(("slack", "cuts"), [(0.0, [2]), (0.5, [3])])
def test_the_drawing_of_the_docstring(slack: float, cuts: list[int]) -> None:
    layers = [(1, 1, 0), (1, 2, 0), (1, 4, 0), (1, 1, 1)]
    assert sticky_cuts([1, 1, 1, 1], 2, lambda i, k: layers[i][1] * (layers[i][2] != k), slack) == cuts
    assert [bytes_moved(layers, [c]) for c in (2, 3)] == [4, 0]


def test_more_workers_than_blocks() -> None:
    with pytest.raises(UserError, match="3 workers need at least as many blocks, the space has 2"):
        sticky_cuts([1.0, 1.0], 3, lambda i, k: 0.0, 0.0)
