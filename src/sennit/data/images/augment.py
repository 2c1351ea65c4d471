"""Random shifts and flips of one image.

They draw from Python's global generator, which is seeded per (seed, seq id, sample) by whoever loads the sample:
the same subnet sees the same pixels, in whichever process they are prepared.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sennit.data.images.image_set import Augment
from sennit.errors import UserError

Image = NDArray[np.uint8]


def moved(image: Image, dy: int, dx: int) -> Image:
    """`image` (channels, height, width) moved down by `dy` and right by `dx` pixels; what is new is 0."""
    height, width = image.shape[1:]
    out = np.zeros_like(image)
    out[:, max(dy, 0) : height + min(dy, 0), max(dx, 0) : width + min(dx, 0)] = image[
        :, max(-dy, 0) : height - max(dy, 0), max(-dx, 0) : width - max(dx, 0)
    ]
    return out


class Shift:
    """Moves an image by up to `pixels` in both directions; all moves are equally likely."""

    def __init__(self, pixels: int) -> None:
        self.pixels = pixels

    def __call__(self, image: Image) -> Image:
        return moved(image, random.randint(-self.pixels, self.pixels), random.randint(-self.pixels, self.pixels))


class ShiftAndFlip(Shift):
    """A shift (padding by `pixels`, then a random crop), and left and right exchanged half of the time."""

    def __call__(self, image: Image) -> Image:
        shifted = super().__call__(image)
        return np.ascontiguousarray(shifted[:, :, ::-1]) if random.random() < 0.5 else shifted


def augmentation(split: str, shift: Any, flip: bool = False) -> Augment | None:
    """What data_args `shift` and `flip` ask for. Only the split "train" is augmented.

    Raises:
        UserError: a negative shift, or one that is no whole number.
    """
    if not isinstance(shift, int) or isinstance(shift, bool) or shift < 0:
        raise UserError(f"data_args shift must be a number of pixels >= 0, got {shift!r}")
    if not split.startswith("train") or not (shift or flip):
        return None
    return ShiftAndFlip(shift) if flip else Shift(shift)
