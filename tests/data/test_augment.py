"""Augmentation: what it does, and that its draws belong to (seed, seq id, sample)."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from sennit.data import DATA
from sennit.data.images.augment import Shift, ShiftAndFlip, augmentation, moved
from sennit.data.order import KeyedBatches
from sennit.errors import UserError

IMAGE = np.arange(1, 10, dtype=np.uint8).reshape(1, 3, 3)


def test_moved_fills_with_zeros() -> None:
    assert moved(IMAGE, 1, 0)[0].tolist() == [[0, 0, 0], [1, 2, 3], [4, 5, 6]]
    assert moved(IMAGE, -1, 0)[0].tolist() == [[4, 5, 6], [7, 8, 9], [0, 0, 0]]
    assert moved(IMAGE, 0, 2)[0].tolist() == [[0, 0, 1], [0, 0, 4], [0, 0, 7]]
    assert moved(IMAGE, 1, -1)[0].tolist() == [[0, 0, 0], [2, 3, 0], [5, 6, 0]]
    assert moved(IMAGE, 0, 0)[0].tolist() == IMAGE[0].tolist()


def test_all_moves_and_flips_occur_and_nothing_else() -> None:
    random.seed(0)
    seen = {Shift(0, 1)(IMAGE).tobytes() for _ in range(100)}
    assert seen == {moved(IMAGE, 0, dx).tobytes() for dx in (-1, 0, 1)}
    seen = {ShiftAndFlip(0, 0)(IMAGE).tobytes() for _ in range(100)}
    assert seen == {IMAGE.tobytes(), np.ascontiguousarray(IMAGE[:, :, ::-1]).tobytes()}


def test_only_training_images_are_augmented() -> None:
    assert augmentation("train", 1) is not None and augmentation("train+valid", [0, 1]) is not None
    assert augmentation("train", 0) is None and augmentation("train", 0, flip=True) is not None
    assert augmentation("valid", 2, flip=True) is None and augmentation("test", 2) is None


@pytest.mark.parametrize("shift", [-1, [1], [0, 1, 2], 1.5, "1", True, [0, -1]])
def test_shifts_that_are_none_are_refused(shift: Any) -> None:
    with pytest.raises(UserError, match="shift"):
        augmentation("train", shift)


def test_draws_are_keyed_by_seed_subnet_and_sample() -> None:
    data = DATA["digits"]("train", shift=1)
    batches = KeyedBatches(data, 16, seed=3)
    later, first = batches[9][0], batches[2][0]
    random.seed(99)  # whatever was drawn before, in whichever order
    np.random.seed(99)
    torch.manual_seed(99)
    assert torch.equal(batches[2][0], first) and torch.equal(batches[9][0], later)
    assert not torch.equal(KeyedBatches(data, 16, seed=4)[2][0], first)
    plain = KeyedBatches(DATA["digits"]("train"), 16, seed=3)
    assert not torch.equal(plain[2][0], first) and torch.equal(plain[2][1], batches[2][1])
