"""What steps take, from what runs of them took."""

from __future__ import annotations

import random

import pytest

from sennit.runtime.fitted import fitted

TRUE = {"stem": 2.0, "big": 8.0, "mid": 4.0, "skip": 0.0}


def test_the_example() -> None:
    parts = [["stem", "big", "mid"], ["stem", "mid", "skip"], ["stem", "big", "skip"]]
    found = fitted([14.0, 6.0, 10.0], parts, dict.fromkeys(TRUE, 1.0))
    sums = [sum(found[name] for name in held) for held in parts]
    assert sums == pytest.approx([14.0, 6.0, 10.0], rel=0.01)
    assert found["big"] > found["mid"] > found["skip"]


def test_candidates_are_told_apart() -> None:
    """Eight blocks in two runs, drawn at random: each candidate of each block has its own time."""
    draw = random.Random(0)
    true = {f"{block}.{name}": seconds * (1 + block) for block in range(8) for name, seconds in TRUE.items()}
    parts, sums = list[list[str]](), list[float]()
    for _ in range(100):
        names = [f"{block}.{draw.choice(list(TRUE))}" for block in range(8)]
        for held in (names[:4], names[4:]):
            parts.append(held)
            sums.append(sum(true[name] for name in held))
    found = fitted(sums, parts, dict.fromkeys(true, 1.0))
    assert [sum(found[name] for name in held) for held in parts] == pytest.approx(sums, rel=0.1, abs=1.0)
    assert max(abs(found[name] - true[name]) for name in true) < 0.1 * max(true.values())


def test_what_always_occurs_together_keeps_its_proportion() -> None:
    assert fitted([9.0, 9.0], [["a", "b"], ["a", "b"]], {"a": 1.0, "b": 2.0}) == pytest.approx({"a": 3.0, "b": 6.0})


def test_nothing() -> None:
    assert fitted([], [], {}) == {}
    assert fitted([0.0], [["a"]], {"a": 1.0}) == {"a": 0.0}
    assert fitted([0.0], [[]], {}) == {}
