"""Covering sets of the acceptance scripts."""

from __future__ import annotations

import itertools
from typing import Any

from acceptance.engine.pairs import Pairwise

FACTORS: dict[str, list[Any]] = {"workers": [1, 2, 4], "plan": ["even", "cuts", "own"], "a": [0, 1], "b": list("xyz")}


def void(row: dict[str, Any]) -> dict[str, str]:
    return {"plan": "workers"} if row["workers"] == 1 else {}


def test_every_value_meets_every_other() -> None:
    pairwise = Pairwise(FACTORS)
    rows = [pairwise.named(row) for row in pairwise.covering()]
    for one, two in itertools.combinations(FACTORS, 2):
        for a, b in itertools.product(FACTORS[one], FACTORS[two]):
            assert any(row[one] == a and row[two] == b for row in rows), (one, a, two, b)
    assert 9 <= len(rows) < 9 * 2 * 3, "fewer than all"


def test_what_means_nothing_meets_nothing() -> None:
    """A plan is met by the other factors where several workers follow it."""
    pairwise = Pairwise(FACTORS, void)
    rows = [pairwise.named(row) for row in pairwise.covering()]
    for other in ("a", "b"):
        for plan, value in itertools.product(FACTORS["plan"], FACTORS[other]):
            assert any(row["plan"] == plan and row[other] == value and row["workers"] > 1 for row in rows)
    alone = next(row for row in pairwise.covering() if pairwise.named(row)["workers"] == 1)
    names = pairwise.names
    plan = names.index("plan")
    assert {names[i] if j == plan else names[j] for i, j, *_ in pairwise.pairs_of(alone) if plan in (i, j)} == {
        "workers"
    }


def test_what_is_missing_is_counted() -> None:
    pairwise = Pairwise(FACTORS, void)
    rows = pairwise.covering()
    assert not pairwise.missing(rows) and pairwise.missing(rows[:-1])
    assert len(pairwise.missing([])) == len(pairwise.all_pairs()) == 3 * 3 + 3 * 2 + 3 * 3 + 3 * 2 + 3 * 3 + 2 * 3
    assert pairwise.least(rows) >= 2 and pairwise.least(rows[:1]) == 0


def test_it_is_the_same_each_time() -> None:
    assert Pairwise(FACTORS, void).covering() == Pairwise(FACTORS, void).covering()
