"""Random shifts and flips of one image.

They draw from Python's global generator, which is seeded per (seed, seq id, sample) by whoever loads the
sample:
the same subnet sees the same pixels, in whichever process they are prepared.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

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
    """Moves an image by up to `down` rows and `across` columns, either way; all moves are equally likely."""

    def __init__(self, down: int, across: int) -> None:
        self.down, self.across = down, across

    def __call__(self, image: Image) -> Image:
        return moved(image, random.randint(-self.down, self.down), random.randint(-self.across, self.across))


class ShiftAndFlip(Shift):
    """A shift (that is padding, then a random crop), and left and right exchanged half of the time."""

    def __call__(self, image: Image) -> Image:
        shifted = super().__call__(image)
        return np.ascontiguousarray(shifted[:, :, ::-1]) if random.random() < 0.5 else shifted


def augmentation(split: str, shift: int | Sequence[int], flip: bool = False) -> Augment | None:
    """What data_args `shift` and `flip` ask for. Only splits that begin with "train" are augmented.

    Args:
        shift: most pixels in both directions, or (rows, columns).

    Raises:
        UserError: a negative shift, or one that is no whole number.
    """
    pair = [n for n in (shift if isinstance(shift, list | tuple) else (shift, shift)) if type(n) is int and n >= 0]
    given = len(shift) if isinstance(shift, list | tuple) else 2
    if len(pair) != 2 or given != 2:
        raise UserError(f"data_args shift must be a number of pixels >= 0, or [rows, columns], got {shift!r}")
    if not split.startswith("train") or not (any(pair) or flip):
        return None
    return ShiftAndFlip(*pair) if flip else Shift(*pair)
