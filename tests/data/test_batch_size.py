"""A batch is no larger than the data set, whatever kind of set it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import sennit as sn
from sennit.data.order import KeyedBatches
from sennit.errors import UserError
from sennit.explore.heldout import held_out


class Points:
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return torch.ones(2) * index, torch.tensor(index)


class Doubles(Points):
    """Forms its batches itself, of twice as many samples as were asked for."""

    def batch(self, seq_id: int, batch_size: int, seed: int) -> list[int]:
        return [i % 10 for i in range(2 * batch_size)]


def test_a_data_set_may_be_one_batch_and_no_less() -> None:
    x, _ = KeyedBatches(Points(), 10, seed=0)[3]
    assert sorted(x[:, 0].tolist()) == list(range(10))
    for size in (11, 10**12):
        with pytest.raises(UserError, match=rf"batch_size = {size:,}, and the data set has 10\.\nLower .* at most 10,"):
            KeyedBatches(Points(), size, seed=0)


def test_a_list_is_a_data_set_too() -> None:
    with pytest.raises(UserError, match=r"batch_size = 4, and the data set has 3"):
        KeyedBatches([(1, 2)] * 3, 4, seed=0)


def test_batches_that_a_data_set_forms_itself() -> None:
    assert len(KeyedBatches(Doubles(), 5, seed=0)[0][0]) == 10
    with pytest.raises(UserError, match=r"batch\(seq_id=2, batch_size=6\) gives 12 samples, more than the 10"):
        KeyedBatches(Doubles(), 6, seed=0)[2]


def recipe(**changes: Any) -> sn.Recipe:
    return sn.Recipe(**{"space": "digits", "data": "digits", "batch_size": 10**12, "steps": 1, **changes})


@pytest.mark.parametrize(
    ("data", "arguments", "said"),
    [
        ("digits", {}, r"batch_size = 1,000,000,000,000, and the data set has 1,197"),
        ("mnist5k", {"limit": 100}, r"and the data set has 100\.\nLower batch_size to at most 100"),
        (
            "pairs",
            {"lengths": [8, 16]},
            r"are 125,000,000,000 rows of padded length 8, and the data set has [45],",
        ),
    ],
)
def test_every_kind_of_data_set(data: str, arguments: dict[str, Any], said: str) -> None:
    """It took minutes, or all memory, to fill such a batch with the same samples."""
    with pytest.raises(UserError, match=said):
        recipe(data=data, data_args=arguments).built.batches[0]
    with pytest.raises(UserError, match=said):
        next(recipe(data=data, data_args=arguments).tasks())


def test_the_most_tokens_that_are_named_are_legal_and_one_row_more_is_not() -> None:
    arguments = {"lengths": [8, 24], "limit": 50}
    built = recipe(data="pairs", batch_size=8 * 50, data_args=arguments).built
    assert {len(built.batches[i][1]) for i in range(2)} <= {50, 16}
    with pytest.raises(UserError, match="at most 400,"):
        recipe(data="pairs", batch_size=8 * 51, data_args=arguments).built.batches[0]


def test_a_held_out_split_may_be_smaller_than_a_batch() -> None:
    pairs = recipe(data="pairs", data_args={"limit": 20}).built.dataset("valid")
    assert sum(len(y) for _, y in held_out(pairs, 10_000, None, 0, torch.device("cpu"))) == 20
    assert sum(len(y) for _, y in held_out(Points(), 64, None, 0, torch.device("cpu"))) == 10
