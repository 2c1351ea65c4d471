"""`Buckets`: token batches in few shapes.

Each sample belongs to the smallest padded length that holds it. A batch takes samples of one length only, and
every batch of that length has the same number of rows, so that there are as many shapes as lengths: graphs
are captured once per shape. The rows divide by the recipe's micro-batches, so that each micro-batch has one
shape too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from sennit.errors import UserError
from sennit.supernet.keys import key_for, numpy_generator

MOST_LENGTHS = 8
"""More shapes than that are not worth their memory."""


class Buckets:
    """Samples by padded length, and the batches made of them.

    Args:
        lengths: padded lengths in tokens, ascending, at most `MOST_LENGTHS`.
        rows_multiple: rows of a batch are a multiple of it; the recipe's `micro_batches`.
        sizes: tokens of each sample, at most `lengths[-1]`.

    Raises:
        UserError: lengths or rows_multiple that are out of range.
    """

    def __init__(self, lengths: Sequence[int], rows_multiple: int, sizes: Sequence[int]) -> None:
        self.lengths = tuple(lengths)
        self.rows_multiple = rows_multiple
        if not isinstance(rows_multiple, int) or rows_multiple < 1:
            raise UserError(
                f"data_args rows_multiple must be a number >= 1 (the recipe's micro_batches), got {rows_multiple!r}"
            )
        if (
            not 1 <= len(self.lengths) <= MOST_LENGTHS
            or not all(isinstance(n, int) and n > 0 for n in self.lengths)
            or list(self.lengths) != sorted(set(self.lengths))
        ):
            raise UserError(
                f"data_args lengths must be 1 to {MOST_LENGTHS} padded lengths in ascending order, "
                f"got {list(lengths)!r}"
            )
        of_sample = [self.length_of(size) for size in sizes]
        self.members = {
            length: np.flatnonzero(np.equal(of_sample, length)) for length in self.lengths if length in of_sample
        }
        self._epoch = lru_cache(maxsize=2)(self._make_epoch)

    def length_of(self, size: int) -> int:
        """The padded length for a sample of `size` tokens.

        Raises:
            UserError: it is longer than the longest.
        """
        for length in self.lengths:
            if size <= length:
                return length
        raise UserError(
            f"a sample of {size} tokens is longer than the longest padded length {self.lengths[-1]}; "
            "add a length to data_args lengths"
        )

    def rows(self, length: int, tokens: int) -> int:
        """Rows of a batch of `length`: the most that keep rows × length within `tokens`.

        Raises:
            UserError: not even `rows_multiple` rows fit.
        """
        rows = tokens // length // self.rows_multiple * self.rows_multiple
        if not rows:
            raise UserError(
                f"batch_size = {tokens} tokens holds {tokens // length} rows of padded length {length}, "
                f"fewer than rows_multiple = {self.rows_multiple}: raise batch_size to "
                f"{length * self.rows_multiple}, or drop that length from data_args lengths"
            )
        return rows

    def batch(self, seq_id: int, batch_size: int, seed: int) -> list[int]:
        """Samples of the batch of subnet `seq_id`; a function of the arguments alone.

        An epoch has every length's samples, in a keyed order, cut into full batches; what is left over waits
        for the next epoch. A length with too few samples for one batch takes them several times.

        Args:
            seq_id: from 0; epochs follow each other without end.
            batch_size: most tokens (rows × padded length).
            seed: the recipe's.
        """
        plan = [(length, self.rows(length, batch_size)) for length in self.members]
        counts = [max(1, len(self.members[length]) // rows) for length, rows in plan]
        epoch, place = divmod(seq_id, sum(counts))
        return list(self._epoch(epoch, batch_size, seed)[place])

    def _make_epoch(self, epoch: int, batch_size: int, seed: int) -> list[list[int]]:
        batches: list[Any] = []
        for length, members in self.members.items():
            rows = self.rows(length, batch_size)
            order = members[numpy_generator(key_for(seed, "data", epoch, length)).permutation(len(members))]
            count = max(1, len(members) // rows)
            batches += np.resize(order, (count, rows)).tolist()
        order = numpy_generator(key_for(seed, "data", epoch)).permutation(len(batches))
        return [batches[i] for i in order]
