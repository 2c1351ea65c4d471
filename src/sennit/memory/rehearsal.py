"""`Rehearsal`: what a cache would have done with the accesses of a recorded run. No torch.

    record of one worker:   admit 7 | ready 7.0 | begin 7.0 | admit 8 | end 7.0 | ready 8.0 | ...
                                         │           │                     │
                                  is it there?   fetch, pin             unpin

The order of tasks is that of the record, whatever the cache does, so that policies are compared on the same accesses.
The same `Cache`, `Eviction` and `Upcoming` as in a worker decide. Copies take the time that their bytes need, one after
the other; a task that waits for one is counted, but begins no later in the record.

`most_kept` is an upper bound of what any policy keeps, for all sizes: bytes are counted in the mean over time (PFOO-L
in Berger, Beckmann and Harchol-Balter 2018). Where all sizes are equal, Belady's rule is the best there is; where they
are not, nobody finds the best in reasonable time, and it may lie below the bound.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from sennit.memory.cache import Cache
from sennit.memory.eviction import Key, LatestNextUse, LeastRecent
from sennit.memory.tally import Tally
from sennit.memory.upcoming import Upcoming, Use

What = Literal["admit", "ready", "begin", "end"]


@dataclass(frozen=True)
class Moment:
    """Of one worker: a run of a subnet is let in; or the forward of one of its micro-batches becomes ready, begins, has
    been followed by its backward."""

    what: What
    time: float
    use: Use
    keys: tuple[Key, ...]


@dataclass
class Rehearsal:
    """One cache over one record.

    Args:
        moments: in order of time.
        sizes: bytes of each slot.
        evict: `oracle` knows the order in which forwards will begin.
        ahead: runs whose layers are fetched before their turn.
        known: how many subnets are drawn and known beyond those that have been let in.
        bytes_per_s: of copies to the device.
    """

    moments: Sequence[Moment]
    sizes: Mapping[Key, int]
    budget: int
    evict: Literal["lru", "next-use", "oracle"] = "lru"
    ahead: int = 0
    known: int = 0
    bytes_per_s: float = math.inf
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self.upcoming, self.truth = Upcoming(), Upcoming()
        for place, (_, keys) in enumerate(first_begins(self.moments)):
            self.truth.admit(place, {0: keys})
        self.place = {use: place for place, (use, _) in enumerate(first_begins(self.moments))}
        foresight = self.truth if self.evict == "oracle" else self.upcoming
        self.cache = Cache(self.budget, LeastRecent() if self.evict == "lru" else LatestNextUse(foresight.next_use))
        self.arrives: dict[Key, float] = {}
        self.lane = -math.inf
        """When the copies that are under way will be done."""
        self.unused: set[Key] = set()
        """Fetched ahead, and not used yet."""
        self.dirty: set[Key] = set()
        self.begun: set[Use] = set()
        self.runs: dict[int, dict[int, tuple[Key, ...]]] = {}
        """Of subnets that have not been let in."""
        for moment in self.moments:
            if moment.what == "admit":
                self.runs.setdefault(moment.use[0], {})[moment.use[1]] = moment.keys
        self.undrawn = deque(sorted(self.runs))

    def run(self) -> Tally:
        for moment in self.moments:
            match moment.what:
                case "admit":
                    self.admit(moment.use[0])
                case "ready":
                    self.ready(moment)
                case "begin":
                    self.begin(moment)
                case "end":
                    self.end(moment)
            self.look_ahead(moment.time)
        return self.tally

    def admit(self, seq_id: int) -> None:
        if (runs := self.runs.pop(seq_id, None)) is None:
            return
        self.upcoming.admit(seq_id, runs)
        while self.undrawn and self.undrawn[0] <= seq_id + self.known:
            y = self.undrawn.popleft()
            if y != seq_id:
                self.upcoming.foretell(y, {key for keys in self.runs[y].values() for key in keys})

    def ready(self, moment: Moment) -> None:
        for key in moment.keys:
            self.tally.reads += 1
            self.tally.hits += key in self.cache.entries and self.arrives[key] <= moment.time

    def begin(self, moment: Moment) -> None:
        if moment.use not in self.begun:
            self.begun.add(moment.use)
            self.upcoming.begun(*moment.use)
            self.truth.begun(self.place[moment.use], 0)
        there = moment.time
        for key in sorted(moment.keys, key=lambda key: key not in self.cache.entries):
            if key not in self.cache.entries:
                gone = self.cache.leaving(self.sizes[key])
                assert gone is not None, f"the record pins more than {self.budget} bytes"
                self.fetch(key, gone, moment.time)
            self.cache.pin(key, moment.use[0])
            there = max(there, self.arrives[key])
            self.tally.right += key in self.unused
            self.unused.discard(key)
        self.tally.stall_s += there - moment.time

    def end(self, moment: Moment) -> None:
        for key in moment.keys:
            self.cache.unpin(key, moment.use[0])
            self.dirty.add(key)

    def look_ahead(self, now: float) -> None:
        for _, keys in islice(self.upcoming.coming(), self.ahead):
            for key in keys:
                if key in self.cache.entries:
                    continue
                gone = self.cache.leaving(self.sizes[key])
                if gone is not None and not any(self.cache.eviction.sooner(other, key) for other in gone):
                    self.fetch(key, gone, now)
                    self.unused.add(key)
                    self.tally.ahead += 1

    def fetch(self, key: Key, gone: Iterable[Key], now: float) -> None:
        for other in gone:
            self.cache.drop(other)
            self.unused.discard(other)
            if other in self.dirty:
                self.dirty.remove(other)
                self.tally.written_bytes += self.sizes[other]
        self.cache.add(key, self.sizes[key])
        self.lane = self.arrives[key] = max(now, self.lane) + self.sizes[key] / self.bytes_per_s
        self.tally.fetches += 1
        self.tally.fetched_bytes += self.sizes[key]


def first_begins(moments: Iterable[Moment]) -> list[tuple[Use, tuple[Key, ...]]]:
    """The order in which runs begin, each once: at the forward of its first micro-batch."""
    found: dict[Use, tuple[Key, ...]] = {}
    for moment in moments:
        if moment.what == "begin":
            found.setdefault(moment.use, moment.keys)
    return list(found.items())


def uses(moments: Iterable[Moment]) -> int:
    """How many layers runs use."""
    return sum(len(keys) for _, keys in first_begins(moments))


def most_kept(moments: Sequence[Moment], sizes: Mapping[Key, int], budget: int) -> int:
    """An upper bound of the uses whose layer has stayed since its last use, so that it need not be fetched.

    A layer that stays takes its bytes at each beginning in between. All that is not pinned may take, over all
    beginnings, so many bytes in sum as are free then; the cheapest are kept first.
    """
    pins: dict[Key, int] = {}
    last: dict[Key, int] = {}
    kept, room, now, costs = 0, 0, 0, list[int]()
    begun: set[Use] = set()
    for moment in moments:
        if moment.what == "end":
            for key in moment.keys:
                pins[key] -= 1
                last[key] = now
                if not pins[key]:
                    del pins[key]
        if moment.what != "begin":
            continue
        now += 1
        for key in moment.keys:
            if moment.use not in begun:
                if key in pins:
                    kept += 1
                elif key in last:
                    costs.append(sizes[key] * (now - 1 - last[key]))
            pins[key] = pins.get(key, 0) + 1
        begun.add(moment.use)
        room += budget - sum(sizes[key] for key in pins)
    for cost in sorted(costs):
        room -= cost
        if room < 0:
            break
        kept += 1
    return kept
