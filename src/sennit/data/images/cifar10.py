"""`cifar10`: CIFAR-10 as JPEG files in one `.npz`, which users bring themselves (it comes without a
licence)."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sennit.data.images.augment import augmentation
from sennit.data.images.image_set import ImageSet
from sennit.data.splits import chosen, cut, joined, keyed_order
from sennit.data.store import data_root, locked, sha256, write_atomically
from sennit.errors import UserError, why

VALID = 3000
"""Images of the file's training part that are held out as "valid"."""

MEAN = (125.3, 123.0, 113.9)
STD = (63.0, 62.1, 66.7)

FILE = "cifar10_jpeg.npz"
"""Name in the data folder."""

MISSING = """CIFAR-10 comes without a licence, so it is not fetched: put cifar10_jpeg.npz into the data folder
($SENNIT_DATA), or give data_args path. The file has the arrays train_bytes, train_offsets, train_labels,
test_bytes, test_offsets and test_labels; image i is the JPEG file bytes[offsets[i]:offsets[i + 1]]"""


def cifar10_images(
    split: str = "train",
    *,
    path: str | os.PathLike[str] | None = None,
    shift: int | Sequence[int] = 0,
    flip: bool = False,
    limit: int | None = None,
) -> ImageSet:
    """CIFAR-10, x is (3, 32, 32).

    Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009. Decoded pixels are kept
    in the data folder, under the hash of the JPEG files; decoding takes seconds and needs pillow.

    Args:
        split: "train", "valid", "test", or several joined by "+". path: the file described in `MISSING`.
            shift, flip: training images are moved by up to so many pixels (or [rows, columns]), and mirrored,
            at random. limit: only the first so many samples.

    Raises:
        UserError: no file, one that does not hold what it should, or pillow is not installed.
    """
    if "test" in chosen(split) and len(chosen(split)) > 1:
        raise UserError(f"split 'test' of cifar10 lies in arrays of its own and cannot be joined, got {split!r}")
    part = "test" if split == "test" else "train"
    pixels, labels = _decoded(data_root() / FILE if path is None else Path(path).expanduser(), part)
    n = len(labels)
    parts = cut(keyed_order(n, "cifar10"), 0, VALID) if part == "train" else {"test": list(range(n))}
    rows = joined(parts, split, limit)
    return ImageSet(pixels[rows], labels[rows], MEAN, STD, augment=augmentation(split, shift, flip))


def _decoded(path: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """Pixels (n, 3, 32, 32) and labels (n,) of "train" or "test"."""
    try:
        with np.load(path, allow_pickle=False) as file:
            raw, offsets, labels = (file[f"{part}_{name}"] for name in ("bytes", "offsets", "labels"))
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} cannot be used: {why(error)}. {MISSING}") from error
    content = raw.tobytes()
    cached = data_root() / "cache" / f"cifar10-{sha256(content + offsets.tobytes())[:16]}.npy"
    if not cached.is_file():
        with locked(cached):
            if not cached.is_file():
                write_atomically(cached, _npy(_decode(content, offsets.tolist())))
    return np.load(cached, mmap_mode="r"), labels


def _decode(content: bytes, offsets: list[int]) -> NDArray[np.uint8]:
    try:
        from PIL import Image
    except ImportError as error:
        raise UserError("data 'cifar10' needs pillow to decode its images: pip install pillow") from error
    pixels = np.empty((len(offsets) - 1, 3, 32, 32), np.uint8)
    for i in range(len(pixels)):
        with Image.open(io.BytesIO(content[offsets[i] : offsets[i + 1]])) as image:
            pixels[i] = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    return pixels


def _npy(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()
