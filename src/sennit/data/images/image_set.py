"""`ImageSet`: pixels and labels in memory, as a map-style dataset of `(x, y)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from sennit.data.store import sha256
from sennit.errors import UserError

Augment = Callable[[NDArray[np.uint8]], NDArray[np.uint8]]
"""One image (channels, height, width) to another of the same shape; draws from the global generators."""


class ImageSet(Dataset[Any]):
    """Images, normalised when they are taken out, after augmentation.

    Args:
        pixels: (n, channels, height, width), uint8.
        labels: (n,), class numbers from 0.
        mean, std: per channel, in units of pixel values.
        augment: applied to each image that is taken out; None leaves it as it is.
        flat: x is a vector of channels × height × width numbers.

    Attributes:
        sha256: of the pixels and labels in this set, raw bytes in sample order.
    """

    def __init__(
        self,
        pixels: NDArray[np.uint8],
        labels: NDArray[np.integer[Any]],
        mean: Sequence[float],
        std: Sequence[float],
        augment: Augment | None = None,
        flat: bool = False,
    ) -> None:
        self.pixels = pixels
        self.labels = labels.astype(np.int64)
        self.mean = np.asarray(mean, dtype=np.float32).reshape(-1, 1, 1)
        self.scale = 1 / np.asarray(std, dtype=np.float32).reshape(-1, 1, 1)
        self.augment = augment
        self.flat = flat

    @property
    def sha256(self) -> str:
        return sha256(np.ascontiguousarray(self.pixels).tobytes() + self.labels.tobytes())

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """`(x, y)`: float32 of shape (channels, height, width), or flat; and the class number, int64."""
        image = self.pixels[index]
        if self.augment is not None:
            image = self.augment(image)
        x = torch.from_numpy((image - self.mean) * self.scale)
        return (x.flatten() if self.flat else x), torch.tensor(self.labels[index])


def enlarged(pixels: NDArray[np.uint8], size: int | None) -> NDArray[np.uint8]:
    """Square images of `size`: each pixel repeated where that fits, else a border of zeros.

    Both are exact, so the result does not depend on a library's way to interpolate.

    Args:
        pixels: (n, channels, s, s).
        size: wanted height and width, at least s; None keeps s.

    Raises:
        UserError: a size below s.
    """
    old = pixels.shape[-1]
    if size is None or size == old:
        return pixels
    if not isinstance(size, int) or size < old:
        raise UserError(f"data_args size must be at least {old}, the size of these images, got {size!r}")
    factor = size // old
    large = pixels.repeat(factor, axis=2).repeat(factor, axis=3)
    before = (size - old * factor) // 2
    after = size - old * factor - before
    return np.pad(large, ((0, 0), (0, 0), (before, after), (before, after)))
