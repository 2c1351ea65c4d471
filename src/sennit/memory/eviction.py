"""Which slot is given up: `LeastRecent`, or `LatestNextUse` by what is known of the tasks to come. No torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Protocol

Key = tuple[str, int]
"""A group, and the number of its slot (`HostStore.slot_of`)."""


class Eviction(Protocol):
    """Knows what was used when, or what will be."""

    def used(self, key: Key) -> None:
        """A slot is used, or has just been taken."""
        ...

    def forget(self, key: Key) -> None:
        """A slot has been given up."""
        ...

    def first(self, keys: Collection[Key]) -> Key:
        """The one of these to give up first."""
        ...

    def sooner(self, key: Key, than: Key) -> bool:
        """Whether `key` is known to be used no later than another, so that it is no gain to give it up for that."""
        ...


class LeastRecent:
    """LRU."""

    def __init__(self) -> None:
        self.now = 0
        self.last: dict[Key, int] = {}

    def used(self, key: Key) -> None:
        self.now += 1
        self.last[key] = self.now

    def forget(self, key: Key) -> None:
        self.last.pop(key, None)

    def first(self, keys: Collection[Key]) -> Key:
        return min(keys, key=lambda key: (self.last.get(key, 0), key))

    def sooner(self, key: Key, than: Key) -> bool:
        return False


class LatestNextUse(LeastRecent):
    """Belady's rule on predicted uses, or on recorded ones; where several are as late, the least recently used.

    Args:
        next_use: of a slot, how many tasks ahead; infinite if none is known.
    """

    def __init__(self, next_use: Callable[[Key], float]) -> None:
        super().__init__()
        self.next_use = next_use

    def first(self, keys: Collection[Key]) -> Key:
        return min(keys, key=lambda key: (-self.next_use(key), self.last.get(key, 0), key))

    def sooner(self, key: Key, than: Key) -> bool:
        return self.next_use(key) <= self.next_use(than)


def never(key: Key) -> float:
    """Nothing is known."""
    return math.inf
