"""Which version of each group there is, who still makes one, and who waits for one.

subnet 3 in     a: writers 3        reads a as of 2: not there ─▶ run waits
subnet 2 steps  a as of 2 is there ─▶ the runs that waited for it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sennit.supernet.sync import Sync

Reader = tuple[int, int]
"""Subnet and run."""


class Versions:
    """Of all groups.

    Args:
        sync: which version is read.
    """

    def __init__(self, sync: Sync) -> None:
        self.sync = sync
        self.newest: dict[str, int] = {}
        """Of each group; older ones that `delayed:K` still reads are kept."""
        self.writers: dict[str, dict[int, int]] = {}
        """Per group, subnets in flight that write it, in order, and how many of their runs still have gradients to
        give."""
        self.readers: dict[tuple[str, int], list[Reader]] = {}
        """(group, version) to the runs that wait for it."""

    def admit(self, y: int, run: int, groups: Iterable[str]) -> int:
        """A run of a subnet comes in, which `sync` has observed. Returns for how many groups it waits."""
        waits = 0
        for group in groups:
            writers = self.writers.setdefault(group, {})
            writers[y] = writers.get(y, 0) + 1
            wanted = self.sync.reads(group, y)
            if self.newest.get(group, -1) < wanted:
                waits += 1
                self.readers.setdefault((group, wanted), []).append((y, run))
        return waits

    def step(self, y: int, groups: Iterable[str]) -> Iterator[tuple[str, int]]:
        """A run has stepped its groups. Yields versions of which nothing is missing any more."""
        for group in groups:
            writers = self.writers[group]
            writers[y] -= 1
            while writers and not (first := next(iter(writers.items())))[1]:
                del writers[first[0]]
                yield group, first[0]

    def publish(self, group: str, version: int) -> list[Reader]:
        """A version is there. Returns who has waited for it."""
        self.newest[group] = version
        return self.readers.pop((group, version), [])

    def awaited(self, y: int, groups: Iterable[str]) -> bool:
        """Whether a subnet in flight waits for groups as `y` leaves them."""
        return any((group, y) in self.readers for group in groups)
