"""Which samples are in the batch of subnet `seq_id`: a function of (seed, seq id), whoever asks.

Samples are shuffled once an epoch, by a key of the epoch; batches run through the epochs without a seam, so
every batch has `batch_size` samples and each sample comes once in an epoch. A batch is no larger than the data set.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from sennit.errors import UserError, first_line
from sennit.supernet.generators import generators_restored, seed_generators
from sennit.supernet.keys import key_for, numpy_generator


@lru_cache(maxsize=4)
def _epoch(seed: int, epoch: int, n: int) -> Any:
    return numpy_generator(key_for(seed, "data", epoch)).permutation(n)


def batch_indices(seed: int, seq_id: int, batch_size: int, n: int) -> list[int]:
    """Sample indices of the batch of `seq_id`.

    Args:
        n: number of samples in the data set.

    Returns:
        `batch_size` indices below n.
    """
    start = seq_id * batch_size
    indices: list[int] = []
    while len(indices) < batch_size:
        epoch, offset = divmod(start + len(indices), n)
        taken = _epoch(seed, epoch, n)[offset : offset + batch_size - len(indices)]
        indices += [int(i) for i in np.asarray(taken)]
    return indices


TOO_LARGE = """a batch holds at most as many samples as the data set has: {asked}, and the data set has {n:,}.
Lower batch_size to at most {most:,}, or give the data set more samples (a limit in data_args leaves some out)"""


class KeyedBatches(torch.utils.data.Dataset[Any]):
    """Item `seq_id` is the collated batch of that subnet. Used directly, or by torch's DataLoader in processes.

    Augmentation draws from the global generators of torch, Python and numpy, which are seeded per
    (seed, seq id, position) here, so it does not matter which process loads a sample, or how often.
    """

    def __init__(self, dataset: Any, batch_size: int, seed: int) -> None:
        try:
            self.length = len(dataset)
        except TypeError:
            raise UserError(f"data must be a map-style dataset with __len__ and __getitem__, got {dataset!r}") from None
        if self.length < 1:
            raise UserError("the data set is empty")
        self.dataset, self.batch_size, self.seed = dataset, batch_size, seed
        if (own := getattr(dataset, "refuse_batch_size", None)) is not None:
            own(batch_size)
        elif not hasattr(dataset, "batch") and batch_size > self.length:
            asked = f"batch_size = {batch_size:,}"
            raise UserError(TOO_LARGE.format(asked=asked, n=self.length, most=self.length))
        self.collate = getattr(dataset, "collate", None) or default_collate

    def indices(self, seq_id: int) -> Sequence[int]:
        own = getattr(self.dataset, "batch", None)
        if own is not None:
            indices = own(seq_id, self.batch_size, self.seed)
            if len(indices) > self.length:
                raise UserError(
                    f"the data set's batch(seq_id={seq_id}, batch_size={self.batch_size}) gives {len(indices):,} "
                    f"samples, more than the {self.length:,} that it has; give fewer, or lower batch_size"
                )
            return indices
        return batch_indices(self.seed, seq_id, self.batch_size, self.length)

    def __getitem__(self, seq_id: int) -> Any:
        with generators_restored():
            samples: list[Any] = []
            for position, index in enumerate(self.indices(seq_id)):
                seed_generators(key_for(self.seed, "sample", seq_id, position, index))
                samples.append(self._sample(seq_id, index))
            seed_generators(key_for(self.seed, "collate", seq_id))
            batch = self._collated(seq_id, samples)
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise UserError(f"a batch must be a pair (x, y), the data set's collate returned {type(batch).__name__}")
        return batch[0], batch[1]

    def _sample(self, seq_id: int, index: int) -> Any:
        try:
            return self.dataset[index]
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"data: sample {index}, for the batch of subnet {seq_id}: {_told(error)}") from error

    def _collated(self, seq_id: int, samples: list[Any]) -> Any:
        try:
            return self.collate(samples)
        except UserError:
            raise
        except Exception as error:
            hint = "; give the data set a method collate(samples)" if self.collate is default_collate else ""
            raise UserError(
                f"data: the samples for the batch of subnet {seq_id} do not make a batch: {_told(error)}{hint}"
            ) from error


def _told(error: Exception) -> str:
    """An error of the data set's, with the line that raised it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{first_line(error)} ({frame.filename}:{frame.lineno} in {frame.name})"
