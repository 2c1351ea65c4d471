"""Fixed memory that captured work reads and writes.

    tensors of a layer, wherever they lie ──copy──▶ staging ──▶ captured kernels

Captured kernels have fixed addresses, and layers come and go in slots. Work that is replayed one after the other may
use the same staging, so there is one per layout and not one per layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sennit.memory.parcel import Parcel, Place, parcels


class Staging:
    """Hands out staging, the same for the same use."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._held: dict[object, Tensor] = {}
        self._parcels: dict[Parcel, Parcel] = {}

    def parcels(self, tensors: Sequence[Tensor]) -> tuple[Parcel, ...]:
        """`parcels`, where equal ones are one object."""
        return tuple(self._parcels.setdefault(parcel, parcel) for parcel in parcels(tensors))

    def bytes(self, use: str, places: tuple[Place, ...], nbytes: int) -> Tensor:
        """Memory for a parcel."""
        key = (use, places, nbytes)
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = torch.zeros(nbytes, dtype=torch.uint8, device=self.device)
        return held

    def tensor(self, use: str, like: Tensor) -> Tensor:
        """Memory for a tensor of this shape, contiguous."""
        key = (use, tuple(like.shape), like.dtype)
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = torch.zeros(like.shape, dtype=like.dtype, device=self.device)
        return held

    @property
    def nbytes(self) -> int:
        return sum(held.nbytes for held in self._held.values())
