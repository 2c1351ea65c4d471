"""`Chains`: how much must still follow each task of the subnets in flight: the longest chain that waits for it.

    subnet 0   F ─▶ F ─▶ B ─▶ B                a chain goes through a subnet, and from the gradients that complete a
                         └▶ W                  version to the forward that reads it, in the next subnet
                             └▶ subnet 1   F ─▶ B ─▶ B
                                                     └▶ W ─▶ subnet 2 ...

The end of a long chain is late whatever else is done; so what starts one should run first (critical path or "highest
level first" scheduling; Hu 1961). What follows a task grows as subnets come in, and is kept up to date from the new
subnet backwards, as far as it changes.

A stream has no end at which all chains stop. Where subnets share little, the chain of a new one, which has its whole
way before it, is longer than what is left of an old one: all in flight would go forward together, and back together,
with idle workers between. So each end is due `LATER` than that of the subnet before, and a chain counts by how late it
makes the end that it leads to (due dates, passed back along what waits for what).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

LATER = 0.25
"""Of the time that a subnet takes if workers never wait: how much later its end is wanted than that of the one before.
With 1, earliest first wins too often where conflicts are rare; from 0.15 to 0.35 makes little difference
(`benchmarks/simulate_orders.py`)."""


@dataclass(slots=True)
class Link:
    """What one run of a subnet costs and waits for.

    Attributes:
        forward, backward, weight: of one micro-batch, in any unit; `backward` is I if backwards are split, else B.
        forward_stretch, backward_stretch: the same, for all neighbouring runs on the same worker together.
        groups: that it reads and writes.
        reads: for each of them the version.
    """

    forward: float
    backward: float
    weight: float
    forward_stretch: float
    backward_stretch: float
    groups: Sequence[str]
    reads: Sequence[int]


@dataclass(slots=True)
class Chain:
    """A subnet in flight.

    Attributes:
        links: its runs.
        due: what follows its end: nothing, the less the later it is wanted.
        forward, backward, weight: per run, what follows from the start of such a task on, itself included.
        after: what follows once a group has stepped.
    """

    links: Sequence[Link]
    due: float
    forward: list[float]
    backward: list[float]
    weight: list[float]
    after: dict[str, float] = field(default_factory=dict[str, float])


class Chains:
    """Of all subnets in flight.

    Args:
        micro_batches: M.
        workers: D.
    """

    def __init__(self, micro_batches: int, workers: int) -> None:
        self.m, self.workers = micro_batches, workers
        self.later, self.due = LATER, 0.0
        self.held: dict[int, Chain] = {}
        self.changes = 0
        """How often chains have grown; orders sort again when it differs."""

    def admit(self, seq_id: int, links: Iterable[Link]) -> None:
        """A subnet comes in: chains through it grow."""
        self.changes += 1
        kept = list(links)
        seconds = self.m * sum(link.forward + link.backward + link.weight for link in kept) / self.workers
        self.due -= self.later * seconds
        self.held[seq_id] = Chain(kept, self.due, [0.0] * len(kept), [0.0] * len(kept), [0.0] * len(kept))
        dirty = [-seq_id]
        known = {seq_id}
        while dirty:
            x = -heappop(dirty)
            for v in self._renew(self.held[x]):
                if v not in known:
                    known.add(v)
                    heappush(dirty, -v)

    def forget(self, below: int) -> None:
        """All subnets below one have ended. (Not each as it ends: a worker knows the lowest unfinished one alone.)"""
        while self.held and (first := next(iter(self.held))) < below:
            del self.held[first]

    def _renew(self, chain: Chain) -> list[int]:
        """Work out a subnet's chains again.

        Returns:
            Subnets in flight whose versions it waits for and for which that means more.
        """
        after, forward, backward, weight = chain.after, chain.forward, chain.backward, chain.weight
        on = due = chain.due
        for r, link in enumerate(chain.links):
            longest = due
            for group in link.groups:
                if (then := after.get(group, due)) > longest:
                    longest = then
            longest += link.weight
            weight[r] = longest
            on = backward[r] = link.backward + (longest if longest > on else on)
        on = backward[-1]
        grown: list[int] = []
        for r in range(len(chain.links) - 1, -1, -1):
            link = chain.links[r]
            on = forward[r] = link.forward + on
            opened = (self.m - 1) * link.forward_stretch + on
            for group, version in zip(link.groups, link.reads, strict=True):
                if (writer := self.held.get(version)) is not None and opened > writer.after.get(group, writer.due):
                    writer.after[group] = opened
                    grown.append(version)
        return grown
