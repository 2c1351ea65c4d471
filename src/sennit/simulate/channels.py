"""`Channels`: when a message is there. One at a time per channel, in the order in which they were made."""

from __future__ import annotations

from sennit.simulate.cluster import Cluster, Link

Key = tuple[int, int, int]
"""Link and direction; see `key_of`."""


def key_of(cluster: Cluster, a: int, b: int) -> Key:
    """The channel from worker a to worker b; equal for messages that must take turns."""
    i = cluster.link(a, b)
    medium = cluster.links[i].medium
    if medium == "shared":
        return i, -1, -1
    return (i, a, b) if medium == "duplex" or a < b else (i, b, a)


class Channels:
    """The channels of a cluster in time."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.free: dict[Key, float] = {}
        """When each channel is free again."""
        self.known: dict[tuple[int, int], tuple[Key, Link]] = {}

    def send(self, a: int, b: int, size: float, now: float) -> float:
        """Send `size` bytes from worker a to another worker b.

        Returns:
            When they are there, seconds.
        """
        if not self.cluster.links:
            return now
        if (a, b) not in self.known:
            key = key_of(self.cluster, a, b)
            self.known[a, b] = key, self.cluster.links[key[0]]
        return self._carry(*self.known[a, b], size, now)

    def swap(self, worker: int, size: float, now: float, *, out: bool) -> float:
        """Move `size` bytes from the host's memory to the worker, or out of it.

        Returns:
            When they are there, seconds.
        """
        link = self.cluster.swap
        if link is None:
            return now
        return self._carry((-1, worker, int(out and link.medium == "duplex")), link, size, now)

    def _carry(self, key: Key, link: Link, size: float, now: float) -> float:
        if link.medium == "shared" and key[0] < 0:
            key = (-1, -1, -1)
        begin = max(now, self.free.get(key, 0.0))
        self.free[key] = begin + size / link.bandwidth
        return self.free[key] + link.latency
