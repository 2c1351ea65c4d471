"""`Slot`: a group on a device; and `Pool`: memory for slots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn

from sennit.memory.device import Copy, Device
from sennit.memory.group_step import GroupStep
from sennit.memory.layout import BOUNDARY, Region
from sennit.memory.parcel import numbers

SMALL = (".step", ".stepped")
"""Ends of the names of state that stays on the host: counters and flags."""


@dataclass
class Slot:
    """A group on the device.

    Attributes:
        flat, state: bytes of its tensors and of its optimizer state.
        leaves: tensors over `flat`.
        version: of the bytes: the one they were fetched in, until the word that came with them has been read; None
            before any came.
        word: reads that word; None once it has been read.
        coming: the copies that bring them, until they are used.
        ahead: fetched for a forward that has not begun.
        dirty: stepped since it was last written back.
        owes_state: the optimizer state has changed since that was.
        used: marks of the device behind what must be over before these bytes are written, or copied to the host.
        step: of these leaves.
    """

    region: Region
    flat: Tensor
    leaves: dict[str, nn.Parameter]
    used: list[Copy]
    state_region: Region | None = None
    state: Tensor | None = None
    version: int | None = None
    word: Callable[[], int] | None = None
    coming: list[Copy] = field(default_factory=list[Copy])
    ahead: bool = False
    dirty: bool = False
    owes_state: bool = False
    step: GroupStep | None = None

    @property
    def known(self) -> int:
        """The version, which is known once it has been stepped."""
        assert self.version is not None
        return self.version

    @cached_property
    def numbers(self) -> Tensor:
        """Its tensors, as numbers in one row."""
        return numbers(self.flat[BOUNDARY:])


class Pool:
    """Memory of former slots is given to slots of the same size; other sizes take its place within the budget.

    Args:
        budget: bytes of all slots and of what lies here.
    """

    def __init__(self, device: Device, budget: int) -> None:
        self.device, self.budget = device, budget
        self.free: list[tuple[Tensor, list[Copy]]] = []
        """The latest last, with what must be over before it is written."""

    def give(self, flat: Tensor, after: list[Copy]) -> None:
        """A slot is given up."""
        self.free.append((flat, after))

    def take(self, nbytes: int, used: int) -> tuple[Tensor, list[Copy]]:
        """Memory for a slot, and what must be over before it is written.

        Args:
            used: bytes of all slots, this one included.
        """
        for i in reversed(range(len(self.free))):
            if self.free[i][0].numel() == nbytes:
                return self.free.pop(i)
        kept = sum(flat.numel() for flat, _ in self.free)
        while self.free and used + kept > self.budget:
            flat, after = self.free.pop(0)
            for copy in after:
                self.device.finish(copy)
            kept -= flat.numel()
        return torch.empty(nbytes, dtype=torch.uint8, device=self.device.torch_device), [self.device.mark()]

    def release(self) -> None:
        """Give all of it back to the device."""
        while self.free:
            for copy in self.free.pop()[1]:
                self.device.finish(copy)
