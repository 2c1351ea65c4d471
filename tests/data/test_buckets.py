"""`Buckets`: few shapes, full batches, a pure function of (seq id, batch size, seed)."""

from __future__ import annotations

from typing import Any

import pytest

from sennit.data.pairs.buckets import Buckets
from sennit.errors import UserError

SIZES = [1 + (7 * i) % 16 for i in range(400)]
LENGTHS = (4, 8, 12, 16)


def made(rows_multiple: int = 2) -> Buckets:
    return Buckets(LENGTHS, rows_multiple, SIZES)


def length_of(batch: list[int]) -> int:
    return made().length_of(max(SIZES[i] for i in batch))


def test_a_sample_belongs_to_the_smallest_length_that_holds_it() -> None:
    buckets = made()
    assert [buckets.length_of(n) for n in (1, 4, 5, 12, 16)] == [4, 4, 8, 12, 16]
    members = sorted(int(i) for part in buckets.members.values() for i in part)
    assert members == list(range(400))
    with pytest.raises(UserError, match="17 tokens is longer than the longest padded length 16"):
        buckets.length_of(17)


@pytest.mark.parametrize("multiple", [1, 2, 3, 4])
def test_rows_of_a_length_are_fixed_full_and_divisible(multiple: int) -> None:
    buckets = made(multiple)
    rows: dict[int, set[int]] = {}
    for seq_id in range(120):
        batch = buckets.batch(seq_id, 64, seed=1)
        lengths = {buckets.length_of(SIZES[i]) for i in batch}
        assert len(lengths) == 1  # one length a batch
        rows.setdefault(lengths.pop(), set()).add(len(batch))
    assert rows == {length: {64 // length // multiple * multiple} for length in LENGTHS}


def test_batches_depend_on_nothing_but_their_arguments() -> None:
    one, two = made(), made()
    forward = [one.batch(seq_id, 64, seed=5) for seq_id in range(150)]
    backward = [two.batch(seq_id, 64, seed=5) for seq_id in reversed(range(150))][::-1]
    assert forward == backward
    assert [one.batch(seq_id, 64, seed=6) for seq_id in range(150)] != forward


def test_an_epoch_has_no_sample_twice_and_the_next_is_in_another_order() -> None:
    buckets = made()
    per_epoch = sum(len(m) // buckets.rows(n, 64) for n, m in buckets.members.items())
    first = [buckets.batch(i, 64, seed=0) for i in range(per_epoch)]
    samples = [i for batch in first for i in batch]
    assert len(set(samples)) == len(samples) > 380  # only what fills no batch is left over
    second = [buckets.batch(per_epoch + i, 64, seed=0) for i in range(per_epoch)]
    assert second != first
    assert [length_of(b) for b in first] != sorted(length_of(b) for b in first)  # lengths come mixed


def test_few_samples_of_a_length_fill_a_batch_by_repeating() -> None:
    buckets = Buckets((4, 8), 2, [3, 3, 3, 7])  # as the few samples of a held-out split
    batches = [buckets.batch(i, 32, seed=0) for i in range(2)]
    assert sorted(map(len, batches)) == [4, 8]
    assert {3} in [set(batch) for batch in batches]


def test_a_batch_too_small_for_one_row_per_micro_batch_names_the_knobs() -> None:
    with pytest.raises(UserError, match="rows_multiple = 4: raise batch_size to 64, or drop that length"):
        made(4).batch(0, 48, seed=0)


@pytest.mark.parametrize("lengths", [[], [8, 4], [4, 4], [0, 4], list(range(1, 10)), [4, 8.5], ["4"]])
def test_lengths_that_are_none_are_refused(lengths: Any) -> None:
    with pytest.raises(UserError, match="lengths must be 1 to 8 padded lengths in ascending order"):
        Buckets(lengths, 1, [1])


@pytest.mark.parametrize("multiple", [0, -2, 1.5, "2"])
def test_rows_multiple_must_be_a_number(multiple: Any) -> None:
    with pytest.raises(UserError, match="rows_multiple"):
        Buckets([4], multiple, [1])
