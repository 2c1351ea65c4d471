"""`Residents`: groups that have a slot on a device with a budget, and how they come and go.

    leave ◀── written back if it has changed ── slot ◀── fetched, or passed on by another device ── come
      └── its memory, once nobody reads it any more ──▶ who comes next

A group comes only into room that there is: who has to leave for it is the caller's to find (`Cache.leaving`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor, nn

from sennit.memory import parcel
from sennit.memory.cache import Cache
from sennit.memory.device import Device
from sennit.memory.eviction import Eviction, Key
from sennit.memory.leaving import Leaving
from sennit.memory.passed import Passed
from sennit.memory.slot import Pool, Slot
from sennit.memory.stepped import Made
from sennit.memory.store import HostStore
from sennit.memory.tally import Tally


class Residents:
    """Of one worker.

    Args:
        budget: bytes.
        eviction: who leaves first.
        passed: which versions come from other devices; told of those that leave.
        before: called before somebody leaves.
    """

    def __init__(
        self, host: HostStore, device: Device, budget: int, eviction: Eviction, passed: Passed,
        before: Callable[[], None],
    ) -> None:  # fmt: skip
        self.host, self.device, self.passed, self.before = host, device, passed, before
        self.sizes, self.spare = host.coming_and_going, host.spare()
        """Bytes of groups that come and go, and those that a step needs beside them."""
        self.cache = Cache(budget, eviction)
        self.slots: dict[Key, Slot] = {}
        self.leaving = Leaving(host, device)
        self.pool = Pool(device, budget)
        self.tally = Tally()
        """Since it was last taken."""

    def load(self, group: str, gone: Iterable[Key]) -> Slot:
        """Give a group a slot, in the place of others, and fetch it."""
        slot = self.empty(group, gone)
        self.fetch(slot, group)
        return slot

    def empty(self, group: str, gone: Iterable[Key]) -> Slot:
        """Give a group a slot, in the place of others."""
        self.before()
        for other in gone:
            self.evict(other)
        self.cache.add((group, 0), self.sizes[group])
        region, state = self.host.slots[group][0], self.host.state.get(group)
        flat, after = self.pool.take(region.nbytes, self.cache.used)
        leaves = {n: nn.Parameter(t, requires_grad=state is not None) for n, t in region.views_of(flat).items()}
        slot = self.slots[group, 0] = Slot(region, flat, leaves, used=after)
        if state is not None and group not in self.passed.stepped.elsewhere:
            slot.state_region = state
            slot.state, after = self.pool.take(state.nbytes, self.cache.used)
            slot.used = [*slot.used, *after]
        return slot

    def fetch(self, slot: Slot, group: str) -> None:
        """Start bringing what the host has of a group."""
        self.leaving.settle(group)
        for copy in slot.coming:  # fetched ahead, and another worker has stepped since
            self.device.finish(copy)
        slot.version = self.host.version(group)
        copy = self.device.fetch(slot.flat, slot.region.bytes(self.host.memory), slot.used)
        slot.word = self.device.word(slot.flat, copy)
        slot.coming = [copy]
        self.tally.fetches += 1
        self.tally.fetched_bytes += slot.region.nbytes
        if slot.state is not None and slot.state_region is not None and self.host.has_stepped(group):
            slot.coming.append(self.device.fetch(slot.state, slot.state_region.bytes(self.host.memory), slot.used))
            self.tally.fetched_bytes += slot.state_region.nbytes
        slot.used = []

    def take(self, made: Iterable[Made]) -> None:
        """Groups as another worker has stepped them. Each is left out if it comes late, or to no place."""
        slots: list[Slot] = []
        sources: list[Tensor] = []
        for group, version, flat in made:
            slot = self._place_for(group, version)
            if slot is not None:
                slot.version, slot.word = version, None
                slots.append(slot)
                sources.append(flat)
        if slots:
            for there in {id(there): there for slot in slots for there in slot.coming}.values():
                self.device.use(there)
            parcel.copy([slot.numbers for slot in slots], sources)
            mark = self.device.mark()
            for slot in slots:
                slot.coming, slot.used = [], [mark]
            self.tally.passed += len(slots)

    def _place_for(self, group: str, version: int) -> Slot | None:
        """The slot for a version that has come, if it is wanted."""
        slot = self.slots.get((group, 0))
        if slot is None:
            gone = self.cache.leaving(self.sizes[group])
            if gone is None or gone:
                self.passed.give_up(group, version)
                return None
            slot = self.empty(group, ())
            slot.coming = slot.used  # its memory may have been another's
        elif slot.version is not None and slot.version >= version:
            return None
        elif self.cache.entries[group, 0].pins:
            self.passed.give_up(group, version)
            return None
        return slot

    def evict(self, key: Key) -> None:
        """Give a slot up; what it owes the host is on its way."""
        slot = self.slots.pop(key)
        self.cache.drop(key)
        if slot.version is not None:
            self.passed.give_up(key[0], slot.version)
        for copy in slot.coming:  # fetched ahead and never used
            self.device.finish(copy)
        owes = slot.dirty or slot.owes_state
        group = key[0]
        after = [*slot.used, *(self.leaving.bring([(group, slot.known, slot)]) if owes else self.leaving.copies(group))]
        for flat in (slot.flat, slot.state):
            if flat is not None:
                self.pool.give(flat, after)

    def evict_all(self) -> None:
        """Whoever may leave does."""
        for key in [key for key, entry in self.cache.entries.items() if not entry.pins]:
            self.evict(key)
        self.pool.release()

    def limit(self, budget: int) -> None:
        """So many bytes from now on."""
        self.cache.budget = self.pool.budget = budget

    def flush(self) -> None:
        """Bring all changes to the host, and publish them there in the order of versions."""
        for (group, _), slot in sorted(self.slots.items(), key=lambda item: item[1].version or 0):
            if slot.dirty or slot.owes_state:
                self.leaving.bring([(group, slot.known, slot)])
        self.leaving.settle_all()

    def counted(self) -> Tally:
        """Since the last call."""
        self.tally.stall_s += self.device.stalled()
        self.tally.written_bytes += self.leaving.written()
        taken, self.tally = self.tally, Tally()
        return taken
