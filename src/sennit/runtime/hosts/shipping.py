"""`Shipping`: a group's bytes out of one host's store and into another's.

    parameters   slot ────────────── and, for whoever makes the next version, optimizer state
    buffers      slot, and what was there before the subnet, which takes a forward back after a NaN

The word that says which version the bytes are is written last. Word and bytes of optimizer state go together, so the
header of the state's region, which one host has no use for, says which version the state belongs to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sennit.memory.layout import BOUNDARY, Region
from sennit.memory.store import VERSION, HostStore
from sennit.runtime.subnet import Word

Key = int | Word
"""A version of parameters, or a word of buffers."""


@dataclass(frozen=True)
class Shipment:
    """A group on its way to another host.

    Attributes:
        key: which version it is.
        slot: parameters or buffers.
        state: optimizer state, or buffers from before the subnet; None if it does not travel.
    """

    group: str
    key: Key
    slot: bytes
    state: bytes | None

    @property
    def nbytes(self) -> int:
        return len(self.slot) + len(self.state or b"")


class Shipping:
    """Packs and unpacks for one host's store."""

    def __init__(self, host: HostStore) -> None:
        self.host = host

    def begin(self) -> None:
        """State and parameters are of one version now: at the start of a run."""
        for group in self.host.state:
            self.state_word(group)[VERSION] = self.host.version(group)

    def state_word(self, group: str) -> np.ndarray:
        """Says which version the optimizer state of a group belongs to."""
        return self.host.state[group].words(self.host.memory)

    def moves(self, group: str) -> bool:
        """Whether it is a buffer group."""
        return group in self.host.before

    def key(self, group: str) -> Key:
        """What is newest here, optimizer state included."""
        if self.moves(group):
            seq_id, micro_batch, use = (int(n) for n in self.host.words[group][0][:3])
            return seq_id, micro_batch, use
        return int(self.state_word(group)[VERSION])

    # -- out

    def pack(self, group: str, key: Key, with_state: bool) -> Shipment:
        """A copy of a group that is in that version here."""
        if self.moves(group):
            before = self._all(self.host.before[group]).tobytes()
            return Shipment(group, key, self._payload(self.host.slots[group][0]).tobytes(), before)
        assert isinstance(key, int)
        slot = self._payload(self.host.slots[group][self.host.slot_of(group, key)]).tobytes()
        return Shipment(group, key, slot, self._payload(self.host.state[group]).tobytes() if with_state else None)

    def gradient(self, group: str, seq_id: int) -> bytes:
        """The gradient of `seq_id` that waits here, under `delayed:K`."""
        return self._payload(self.host.waiting[group][seq_id % self.host.shared.lag]).tobytes()

    # -- in

    def put(self, shipment: Shipment, around: Callable[[], None] = lambda: None) -> None:
        """Bytes first, then the word.

        Args:
            around: called between them.
        """
        host, group = self.host, shipment.group
        if self.moves(group):
            assert shipment.state is not None and not isinstance(shipment.key, int)
            self._all(host.before[group])[:] = np.frombuffer(shipment.state, np.uint8)
            self._payload(host.slots[group][0])[:] = np.frombuffer(shipment.slot, np.uint8)
            around()
            host.move(group, shipment.key)
            return
        assert isinstance(shipment.key, int)
        slot = host.slot_of(group, shipment.key)
        self._payload(host.slots[group][slot])[:] = np.frombuffer(shipment.slot, np.uint8)
        if shipment.state is not None:
            self._payload(host.state[group])[:] = np.frombuffer(shipment.state, np.uint8)
            self.state_word(group)[VERSION] = shipment.key
        around()
        if shipment.state is None and group in host.delayed:
            host.words[group][slot][VERSION] = shipment.key  # to be read; not the newest for the next step
        else:
            host.publish(group, shipment.key)

    def put_gradient(self, group: str, seq_id: int, data: bytes) -> None:
        """A gradient that waits."""
        k = seq_id % self.host.shared.lag
        self._payload(self.host.waiting[group][k])[:] = np.frombuffer(data, np.uint8)
        self.host.waiting_words[group][k][VERSION] = seq_id

    def _all(self, region: Region) -> np.ndarray:
        return np.frombuffer(self.host.memory, np.uint8, region.nbytes, region.offset)

    def _payload(self, region: Region) -> np.ndarray:
        return self._all(region)[BOUNDARY:]
