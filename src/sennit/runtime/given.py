"""`Given`: memory of this process's GPU that other workers read.

free ── place, event ──▶ sent ── the receiver has read it ──▶ free
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from sennit.runtime.full import is_full
from sennit.runtime.places import Places
from sennit.runtime.reach import Event, Handle, Reach
from sennit.runtime.wire import rows

FIRST = 1 << 24
"""Bytes of the first block. Each next one is as large as all before it, or as what is to be sent."""


@dataclass(frozen=True)
class Block:
    """Memory of this process that others read.

    Attributes:
        number: by which others know it.
    """

    number: int
    memory: Tensor
    handle: Handle
    places: Places


@dataclass(frozen=True)
class Place:
    """Where the tensors of a message are, and the event after which they are there."""

    block: int
    offset: int
    nbytes: int
    event: int


class Given:
    """Of one worker.

    Args:
        others: workers that read it.
    """

    def __init__(self, reach: Reach, others: Iterable[int]) -> None:
        self.reach = reach
        self.blocks: list[Block] = []
        self.events: list[tuple[Event, Handle]] = []
        self.spare: list[int] = []
        """Events that nobody waits for."""
        self.sent: dict[int, Place] = {}
        """By ticket."""
        self._tickets = 0
        self._told: dict[int, tuple[int, int]] = dict.fromkeys(others, (0, 0))
        """How many blocks and events each of the others has handles of."""

    def handles(self, worker: int) -> tuple[list[Handle], list[Handle]]:
        """Of what a worker has not been told of."""
        blocks, events = self._told[worker]
        self._told[worker] = len(self.blocks), len(self.events)
        return [block.handle for block in self.blocks[blocks:]], [handle for _, handle in self.events[events:]]

    def write(self, nbytes: int, tensors: Sequence[Tensor]) -> tuple[int, Place] | None:
        """Copy tensors, behind all that has been computed, one behind the other to where others read them.

        Args:
            nbytes: that they take in a row (`laid_out`).

        Returns:
            A ticket, by which the place is given back, and the place; None if the GPU has no room.
        """
        block, offset = self._room(nbytes)
        if block is None:
            return None
        event = self._event()
        self.reach.write(*rows(block.memory[offset : offset + nbytes], tensors), self.events[event][0])
        self._tickets += 1
        self.sent[self._tickets] = place = Place(block.number, offset, nbytes, event)
        return self._tickets, place

    def _room(self, nbytes: int) -> tuple[Block | None, int]:
        """Room for so many bytes; no block if the GPU has none."""
        for block in reversed(self.blocks):
            offset = block.places.take(nbytes)
            if offset is not None:
                return block, offset
        try:
            block = self.grow(max(nbytes, sum(block.places.size for block in self.blocks)))
        except RuntimeError as error:
            if not is_full(error):
                raise
            return None, 0
        offset = block.places.take(nbytes)
        assert offset is not None
        return block, offset

    def grow(self, nbytes: int) -> Block:
        """One block more."""
        memory, handle = self.reach.block(nbytes)
        block = Block(len(self.blocks), memory, handle, Places(nbytes))
        self.blocks.append(block)
        return block

    def _event(self) -> int:
        """One that nobody waits for."""
        if not self.spare:
            self.spare.append(len(self.events))
            self.events.append(self.reach.event())
        return self.spare.pop()

    def give_back(self, tickets: Iterable[int]) -> None:
        """A receiver has read these."""
        for ticket in tickets:
            place = self.sent.pop(ticket)
            self.blocks[place.block].places.give(place.offset, place.nbytes)
            self.spare.append(place.event)
