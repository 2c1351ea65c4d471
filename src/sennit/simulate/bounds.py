"""Lower bounds: how short the makespan of a load could be under any order, and what binds.

    dependencies   every run has a worker of its own: only values, gradients and versions are waited for
    devices        every dependency is there at once: each worker does its work, after the shortest way to its first
                   task and before the shortest way from its last one

Dependencies are followed at the granularity of runs (a layer, if every layer is a run), for the first and for the last
micro-batch of a subnet on a run; in between the run's worker needs its time for all of them:

    first(r) = max(open(r), first(r - 1)) + f        open: all groups of r are in the version that y reads
    last(r)  = max(last(r - 1) + f, first(r) + (M - 1) f)

and the same backwards. Both hold for every order, so the larger one bounds the makespan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sennit.simulate.load import Load, Piece
from sennit.supernet.sync import Sync

Binding = Literal["dependencies", "devices"]

Released = dict[str, dict[int, float]]
"""Group to version to when it is there."""


@dataclass(frozen=True)
class Bounds:
    """Seconds below which no order can go.

    Attributes:
        dependencies: unlimited workers.
        devices: the given workers, no dependencies but the way in and out.
        work: of all tasks together.
        workers: how many.
    """

    dependencies: float
    devices: float
    work: float
    workers: int

    @property
    def makespan(self) -> float:
        return max(self.dependencies, self.devices)

    @property
    def binds(self) -> Binding:
        return "dependencies" if self.dependencies > self.devices else "devices"

    @property
    def bubble(self) -> float:
        """Of a schedule that reaches the bound."""
        return max(0.0, 1.0 - self.work / (self.workers * self.makespan))


def bounds(load: Load, sync: Sync, in_flight: float = math.inf, *, split: bool = False) -> Bounds:
    """Bounds for a load.

    Args:
        sync: which versions are read; a fresh one.
        in_flight: most unfinished subnets.
        split: backward as I and W.
    """
    m = load.micro_batches
    work = [0.0] * load.workers
    head = [math.inf] * load.workers
    tail = [math.inf] * load.workers
    released: Released = {}
    """When each version of a group that is still read is there at the earliest."""
    ends: list[float] = []
    for y, pieces in enumerate(load.subnets()):
        _count(pieces, m, split, work, head, tail)
        sync.observe(y, [group for piece in pieces for group in piece.groups])
        admitted = 0.0 if y < in_flight else sorted(ends)[y - int(in_flight)]
        ends.append(_subnet(y, pieces, m, split, sync, released, admitted))
        sync.forget(y)
    busiest = max(h + w + t for h, w, t in zip(head, work, tail, strict=True) if w)
    return Bounds(max(ends), busiest, sum(work), load.workers)


def _count(
    pieces: Sequence[Piece], m: int, split: bool, work: list[float], head: list[float], tail: list[float]
) -> None:
    """Add up the work of each worker; find the shortest ways to it and from it."""
    before = after = 0.0
    for piece in pieces:
        cost, k = piece.cost, piece.worker
        backward = cost.input + cost.weight if split else cost.whole
        work[k] += m * (cost.forward + backward)
        head[k] = min(head[k], before)
        tail[k] = min(tail[k], 0.0 if split else after)  # a W may come last, and nothing follows it
        before += cost.forward
        after += cost.whole


def _subnet(
    y: int,
    pieces: Sequence[Piece],
    m: int,
    split: bool,
    sync: Sync,
    released: dict[str, dict[int, float]],
    admitted: float,
) -> float:
    """Earliest end of a subnet; notes when its versions are there."""
    first = last = admitted
    for piece in pieces:
        begin = max([first, *(_opens(released.get(group, {}), sync.reads(group, y)) for group in piece.groups)])
        f = piece.cost.forward
        first, last = begin + f, max(last + f, begin + m * f)
    end = 0.0
    for piece in reversed(pieces):
        cost = piece.cost
        b = cost.input if split else cost.whole
        begin = first
        first, last = begin + b, max(last + b, begin + m * b)
        done = max(last + cost.weight, begin + m * (b + cost.weight)) if split else last
        for group in piece.groups:
            released.setdefault(group, {})[y] = done
        end = max(end, done)
    return end


def _opens(released: dict[int, float], version: int) -> float:
    """When a version is there; earlier ones are not asked for again. A version holds all earlier gradients."""
    opens = 0.0
    for x in [x for x in released if x <= version]:
        opens = max(opens, released[x])
        if x < version:
            del released[x]
    if version in released:
        released[version] = opens
    return opens
