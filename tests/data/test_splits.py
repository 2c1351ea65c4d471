"""Splits: fixed, disjoint, together everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sennit.data import DATA
from sennit.data.splits import SPLITS, chosen, cut, joined, keyed_order, split_of
from sennit.errors import UserError

SIZES = {
    "digits": {"train": 1197, "valid": 240, "test": 360},
    "mnist5k": {"train": 3500, "valid": 500, "test": 1000},
}


def rows(dataset: Any) -> list[bytes]:
    return [image.tobytes() for image in dataset.pixels]


def test_keyed_order_is_a_fixed_permutation() -> None:
    assert keyed_order(8, "digits") == [6, 4, 1, 0, 5, 3, 2, 7]
    assert sorted(keyed_order(100, "x")) == list(range(100))
    assert keyed_order(100, "x") != keyed_order(100, "y")


def test_cut_takes_each_sample_once() -> None:
    parts = cut(keyed_order(50, "x"), test=10, valid=5)
    assert {name: len(part) for name, part in parts.items()} == {"test": 10, "valid": 5, "train": 35}
    assert sorted(i for part in parts.values() for i in part) == list(range(50))


def test_source_decides_the_split() -> None:
    found = [split_of(f"sentence {i}") for i in range(2000)]
    assert found == [split_of(f"sentence {i}") for i in range(2000)]
    assert 60 < found.count("valid") < 140 and 60 < found.count("test") < 140


@pytest.mark.parametrize("split", ["", "dev", "train+train", "train+", "train,valid", None, 3])
def test_unknown_splits_are_refused_by_name(split: Any) -> None:
    with pytest.raises(UserError, match="split must be one of train, valid, test"):
        chosen(split)


@pytest.mark.parametrize("limit", [0, -1, 1.5, "many"])
def test_limit_must_be_a_number_of_samples(limit: Any) -> None:
    with pytest.raises(UserError, match="limit"):
        joined({"train": [1, 2]}, "train", limit)


@pytest.mark.parametrize("name", SIZES)
def test_splits_of_images_are_disjoint_and_complete(name: str) -> None:
    make: Callable[..., Any] = DATA[name]
    parts = {split: make(split) for split in SPLITS}
    assert {split: len(part) for split, part in parts.items()} == SIZES[name]
    everything = [row for part in parts.values() for row in rows(part)]
    assert len(set(everything)) == len(everything)  # no image twice, so none in two splits
    assert rows(make("train+valid")) == rows(parts["train"]) + rows(parts["valid"])
    assert rows(make("test", limit=7)) == rows(parts["test"])[:7]


def test_splits_of_pairs_share_no_source() -> None:
    sources = {split: {tuple(s) for s in DATA["pairs"](split).sources} for split in SPLITS}
    assert all(sources.values())
    assert not sources["train"] & sources["valid"]
    assert not sources["train"] & sources["test"]
    assert not sources["valid"] & sources["test"]
