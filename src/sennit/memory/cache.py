"""`Cache`: what is in the slots of a device, what may not leave, and who leaves when something comes. No torch.

    budget  |  pinned by the oldest subnet  |  pinned by younger ones  |  may leave  |  free  |
                                            |<-- at most budget - room -->|

A forward pins the groups that it reads until its subnet's last backward on this worker is done: their tensors are in a
live graph. Younger subnets leave `room` for the largest share of any subnet, so that the oldest one can always pin what
it needs; when it ends, the next one is the oldest, and those behind it have left room for it (the banker's rule, as in
`simulate/memory.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sennit.memory.eviction import Eviction, Key


@dataclass(slots=True)
class Entry:
    """A slot in use.

    Attributes:
        nbytes: of it.
        pins: by subnet, how many micro-batches hold it.
    """

    nbytes: int
    pins: dict[int, int]


class Cache:
    """Of one device.

    Args:
        budget: bytes.
        eviction: picks among those that may leave.
    """

    def __init__(self, budget: int, eviction: Eviction) -> None:
        self.budget, self.eviction = budget, eviction
        self.entries: dict[Key, Entry] = {}
        self.used = 0
        self.dropped = 0
        """Slots given up so far."""
        self.room = 0
        """The largest share of a subnet so far, in bytes."""

    def expect(self, share: int) -> None:
        """A subnet has come in whose groups on this worker have so many bytes together."""
        self.room = max(self.room, share)

    def may_pin(self, seq_id: int, sizes: Mapping[Key, int], lowest: int) -> bool:
        """Whether a forward of a subnet can pin these groups without taking the room of the oldest subnet.

        Args:
            lowest: the lowest unfinished subnet of all workers, or one below it.
        """
        if seq_id <= lowest:
            return True
        young = {key: e.nbytes for key, e in self.entries.items() if any(y > lowest for y in e.pins)}
        return sum({**young, **sizes}.values()) + self.room <= self.budget

    def fits(self, sizes: Mapping[Key, int], spare: int) -> bool:
        """Whether these fit beside all that is pinned and some bytes more. That is all that counts where the order of
        forwards and backwards is given: nobody can do better by waiting."""
        pinned = {key: e.nbytes for key, e in self.entries.items() if e.pins}
        return sum({**pinned, **sizes}.values()) + spare <= self.budget

    def pin(self, key: Key, seq_id: int) -> None:
        pins = self.entries[key].pins
        pins[seq_id] = pins.get(seq_id, 0) + 1
        self.eviction.used(key)

    def unpin(self, key: Key, seq_id: int) -> None:
        pins = self.entries[key].pins
        pins[seq_id] -= 1
        if not pins[seq_id]:
            del pins[seq_id]

    def leaving(self, nbytes: int) -> list[Key] | None:
        """Who must leave so that so many bytes are free; None if those that may leave are not enough."""
        missing = self.used + nbytes - self.budget
        gone: list[Key] = []
        loose = {key for key, entry in self.entries.items() if not entry.pins}
        while missing > 0:
            if not loose:
                return None
            key = self.eviction.first(loose)
            loose.remove(key)
            gone.append(key)
            missing -= self.entries[key].nbytes
        return gone

    def add(self, key: Key, nbytes: int) -> None:
        """A slot is taken; `leaving` has said who had to leave."""
        assert key not in self.entries and self.used + nbytes <= self.budget, (key, nbytes, self.used, self.budget)
        self.entries[key] = Entry(nbytes, {})
        self.used += nbytes
        self.eviction.used(key)

    def drop(self, key: Key) -> None:
        entry = self.entries.pop(key)
        assert not entry.pins, f"{key} is pinned by {sorted(entry.pins)}"
        self.used -= entry.nbytes
        self.dropped += 1
        self.eviction.forget(key)
