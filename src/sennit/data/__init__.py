"""Data: real sets that are shipped in packages or built from them, and the keyed order in which they are
read.

A set is a map-style dataset of `(x, y)`. Beyond `__len__` and `__getitem__` it may have
    collate(samples) -> (x, y)                              instead of torch's default
    batch(seq_id, batch_size, seed) -> list[int]            the samples of a subnet's batch, a pure function
    refuse_batch_size(batch_size)                           raises UserError if batches would be too large, with `batch`
    score(network, device) -> dict[str, float]              metrics beyond loss and accuracy
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sennit.data.images.cifar10 import cifar10_images
from sennit.data.images.digits import digits_images
from sennit.data.images.fashion import fashion_images
from sennit.data.images.mnist5k import mnist5k_images
from sennit.data.pairs.ende import ende_pairs
from sennit.data.pairs.number_words import number_pairs

DATA: dict[str, Callable[..., Any]] = {
    "digits": digits_images,
    "mnist5k": mnist5k_images,
    "fashion": fashion_images,
    "cifar10": cifar10_images,
    "pairs": number_pairs,
    "ende": ende_pairs,
}
"""Built-in sets: `DATA[name](split, **data_args)` with split "train", "valid" or "test"."""
