"""`fashion`: Fashion-MNIST, fetched from a Debian package."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sennit.data import fetch
from sennit.data.images.augment import augmentation
from sennit.data.images.image_set import ImageSet, enlarged
from sennit.data.splits import chosen, cut, joined, keyed_order
from sennit.data.store import read_file
from sennit.errors import UserError

VALID = 5000


def fashion_images(
    split: str = "train",
    *,
    path: str | os.PathLike[str] | None = None,
    pin: str | None = None,
    size: int | None = None,
    shift: int | Sequence[int] = 0,
    flip: bool = False,
    limit: int | None = None,
) -> ImageSet:
    """Train 55,000, valid 5,000, test 10,000 images of clothes in 10 classes; x is (1, size, size).

    Source: Xiao et al., "Fashion-MNIST", arXiv 1708.07747 (MIT licence).

    Args:
        split: "train", "valid", "test", or several joined by "+". path: the file that `sennit data fetch
            fashion` made, if it is not in the data folder. pin: SHA-256 of the arrays, where it is to be
            another one than the pinned. size: height and width, at least 28 (the default); a border of zeros
            is added. shift, flip: training images are moved by up to so many pixels (or [rows, columns]), and
            mirrored, at random. limit: only the first so many samples.

    Raises:
        UserError: the set has not been fetched, or an argument is out of range.
    """
    if "test" in chosen(split) and len(chosen(split)) > 1:
        raise UserError(f"split 'test' of fashion lies in arrays of its own and cannot be joined, got {split!r}")
    part = "test" if split == "test" else "train"
    where = Path(path) if path is not None else fetch.fetched("fashion", sha256=pin)
    content = read_file(where, "Fashion-MNIST")
    if path is None or pin is not None:
        fetch.check("fashion", content, where, pin)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            pixels, labels = file[f"{part}_images"], file[f"{part}_labels"]
    except (ValueError, KeyError) as error:
        raise UserError(f"data_args path = {str(where)!r} does not hold Fashion-MNIST: {error}") from error
    n = len(labels)
    parts = cut(keyed_order(n, "fashion"), 0, VALID) if part == "train" else {"test": list(range(n))}
    rows = joined(parts, split, limit)
    images = enlarged(pixels[rows].reshape(-1, 1, 28, 28), size)
    return ImageSet(images, labels[rows], [72.9], [90.0], augment=augmentation(split, shift, flip))


def from_package(folder: Path) -> bytes:
    """The set as `.npz`, from the unpacked package: arrays train_images, train_labels, test_images,
    test_labels.

    Raises:
        UserError: the package does not hold the files it should.
    """
    arrays = {}
    for part, prefix in (("train", "train"), ("test", "t10k")):
        arrays[f"{part}_images"] = _idx(folder, f"{prefix}-images-idx3-ubyte")
        arrays[f"{part}_labels"] = _idx(folder, f"{prefix}-labels-idx1-ubyte")
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def content_of(npz: bytes) -> bytes:
    """What the set is pinned by: the raw bytes of its arrays, in the order of their names."""
    with np.load(io.BytesIO(npz), allow_pickle=False) as file:
        return b"".join(np.ascontiguousarray(file[name]).tobytes() for name in sorted(file.files))


def _idx(folder: Path, name: str) -> NDArray[Any]:
    """An array in the IDX format: two zero bytes, type 8 (uint8), number of dimensions, sizes (big-endian),
    data."""
    found = sorted(folder.rglob(f"{name}.gz"))
    if not found:
        raise UserError(f"the package has no file {name}.gz, where Fashion-MNIST was expected; try another release")
    data = gzip.decompress(found[0].read_bytes())
    dims = data[3]
    shape = np.frombuffer(data, ">u4", dims, 4).tolist()
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dims).reshape(shape)
