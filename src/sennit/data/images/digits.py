"""`digits`: the 1,797 handwritten digits that come with scikit-learn, 8×8 pixels with values 0 to 16."""

from __future__ import annotations

import gzip
from collections.abc import Sequence

import numpy as np

from sennit.data.images.augment import augmentation
from sennit.data.images.image_set import ImageSet, enlarged
from sennit.data.splits import cut, joined, keyed_order
from sennit.data.store import package_file

TEST, VALID = 360, 240
"""Samples held out: a fifth for the test, and as much of the rest as separates networks that differ by
.004."""


def digits_images(
    split: str = "train", *, size: int | None = None, shift: int | Sequence[int] = 0, limit: int | None = None
) -> ImageSet:
    """Train 1,197, valid 240, test 360 images.

    Source: `sklearn/datasets/data/digits.csv.gz` (UCI ML, "Optical Recognition of Handwritten Digits").

    Args:
        split: "train", "valid", "test", or several joined by "+". size: height and width of the image that x
            is, (1, size, size); None: x is a vector of 64 numbers. shift: training images are moved by up to
            so many pixels at random, or [rows, columns]. The digits fill the
            height but not the width, so [0, 1] loses nothing and [1, 1] cuts strokes off.
        limit: only the first so many samples.

    Raises:
        UserError: an argument that is out of range, or scikit-learn is not installed.
    """
    with gzip.open(package_file("sklearn", "datasets/data/digits.csv.gz"), "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32).astype(np.uint8)
    parts = cut(keyed_order(len(table), "scikit-learn digits"), TEST, VALID)
    rows = table[joined(parts, split, limit)]
    pixels = enlarged(rows[:, :64].reshape(-1, 1, 8, 8), size)
    return ImageSet(pixels, rows[:, 64], mean=[8], std=[8], augment=augmentation(split, shift), flat=size is None)
