"""Where every tensor of a supernet lies in one block of shared memory.

The block is a row of regions. A region holds the tensors of one group behind a header, so that one copy moves
the group *and* the word that says which version it is:

    │ version word ... 256 B │ tensor │ tensor │ ...
      header                   each on a 256-byte boundary, with its strides

Pages that nobody has touched (optimizer state of parameters that never stepped) cost no memory.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

BOUNDARY = 256
WORDS = BOUNDARY // 8


@dataclass(frozen=True)
class Place:
    """A tensor inside a region; `offset` in bytes from the region's start."""

    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        if 0 in self.shape:
            return 0
        span = 1 + sum((n - 1) * s for n, s in zip(self.shape, self.stride, strict=True))
        return span * self.dtype.itemsize

    def view(self, region: Tensor) -> Tensor:
        """The tensor inside the region's bytes (uint8)."""
        flat = region[self.offset : self.offset + self.nbytes].view(self.dtype)
        return torch.as_strided(flat, self.shape, self.stride, flat.storage_offset())


@dataclass(frozen=True)
class Region:
    """A header and tensors, `nbytes` in all, `offset` bytes from the start of the block."""

    offset: int
    nbytes: int
    places: dict[str, Place]

    def bytes(self, memory: mmap.mmap) -> Tensor:
        """All of it as uint8."""
        return torch.frombuffer(memory, dtype=torch.uint8, count=self.nbytes, offset=self.offset)

    def views(self, memory: mmap.mmap) -> dict[str, Tensor]:
        """The tensors in shared memory. Each is a base of its own, because views of one base share autograd's
        version counter, and a step of one parameter would look like a change of all."""
        found: dict[str, Tensor] = {}
        for name, place in self.places.items():
            if not place.nbytes:
                found[name] = torch.empty(place.shape, dtype=place.dtype)
                continue
            flat = torch.frombuffer(
                memory, dtype=place.dtype, count=place.nbytes // place.dtype.itemsize, offset=self.offset + place.offset
            )
            found[name] = flat.as_strided(place.shape, place.stride)
        return found

    def views_of(self, region: Tensor) -> dict[str, Tensor]:
        """The tensors inside a copy of the region's bytes (uint8), on any device; each a base of its own."""
        storage = region.untyped_storage()
        found: dict[str, Tensor] = {}
        for name, place in self.places.items():
            at = (region.storage_offset() + place.offset) // place.dtype.itemsize
            found[name] = torch.empty(0, dtype=place.dtype, device=region.device).set_(
                storage, at, place.shape, place.stride
            )
        return found

    def words(self, memory: mmap.mmap) -> np.ndarray:
        """The header as int64 numbers; writing them writes the memory."""
        return np.frombuffer(memory, dtype=np.int64, count=WORDS, offset=self.offset)


class Layout:
    """Hands out regions one after the other."""

    def __init__(self) -> None:
        self.size = 0

    def region(self, tensors: Iterable[tuple[str, Tensor]]) -> Region:
        """A region for tensors of these shapes, strides and dtypes."""
        places: dict[str, Place] = {}
        at = BOUNDARY
        for name, like in tensors:
            place = Place(at, tuple(like.shape), tuple(like.stride()), like.dtype)
            places[name] = place
            at += -(-max(place.nbytes, 1) // BOUNDARY) * BOUNDARY
        made = Region(self.size, at, places)
        self.size += at
        return made
