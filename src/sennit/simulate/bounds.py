"""Lower bounds: how short the makespan of a load could be under any order, and what binds.

    dependencies   every run has a worker of its own: only values, gradients and versions are waited for
    devices        every worker does its work, after the shortest way to its first task and before the shortest way
                   from its last one
    links          every channel carries what it must, likewise
    memory         activations x the time for which each must be held fit under each worker's limit:
                       head + sum of bytes x round trip / limit + tail
    together       each worker, and each channel, is one machine whose jobs have the heads and tails that dependencies
                   give them (`one_machine`). Never below the first three

Each holds for every order with as many subnets in flight, so the largest bounds the makespan; the largest of the first
four says what binds. Where dependencies bind, more workers bring nothing; other micro-batches, a fair sampler or finer
runs do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from sennit.simulate.channels import key_of
from sennit.simulate.cluster import Cluster
from sennit.simulate.load import Load
from sennit.simulate.one_machine import Job, one_machine
from sennit.simulate.paths import Way, channels_of, round_trips, ways
from sennit.supernet.sync import Sync

Binding = Literal["dependencies", "devices", "links", "memory"]


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Seconds below which no order can go.

    Attributes:
        dependencies, devices, links, memory, together: see the module.
        work: device time of all tasks.
        workers: how many.
    """

    dependencies: float
    devices: float
    links: float
    memory: float
    together: float
    work: float
    workers: int

    @property
    def makespan(self) -> float:
        return max(self.dependencies, self.devices, self.links, self.memory, self.together)

    @property
    def binds(self) -> Binding:
        held: dict[Binding, float] = {
            "devices": self.devices, "dependencies": self.dependencies, "links": self.links, "memory": self.memory,
        }  # fmt: skip
        # equal but for rounding is devices: then nothing is waited for
        return max(held, key=lambda name: held[name] * (1 + 1e-9 * (name == "devices")))

    @property
    def bubble(self) -> float:
        """Of a schedule that reaches the bound; 0 if nothing takes time."""
        return max(0.0, 1.0 - self.work / (self.workers * self.makespan)) if self.makespan else 0.0


def bounds(
    load: Load, sync: Sync, in_flight: float = math.inf, *, split: bool = False, cluster: Cluster | None = None
) -> Bounds:
    """Bounds for a load.

    Args:
        sync: which versions are read; a fresh one.
        in_flight: from the lowest unfinished subnet on, so many may be in flight.
        split: backward as I and W.
        cluster: links, memory and host.
    """
    cluster = cluster or Cluster()
    found = ways(load, sync, in_flight, split=split, cluster=cluster)
    jobs = [list(_jobs(found, worker, split)) for worker in range(load.workers)]
    messages = list(_messages(found, cluster).values())
    tasks = load.micro_batches * (3 if split else 2) * sum(len(way.pieces) for way in found)
    return Bounds(
        dependencies=max(way.end for way in found),
        devices=max(map(_loose, jobs)),
        links=max(map(_loose, messages), default=0.0),
        memory=max(_memory(found, worker, limit) for worker, limit in enumerate(cluster.limits(load.workers))),
        together=max(map(one_machine, [*jobs, *messages])),
        work=sum(work for mine in jobs for _, work, _ in mine) - tasks * cluster.host_s,
        workers=load.workers,
    )


def _loose(jobs: Sequence[Job]) -> float:
    """All jobs in a row between the shortest head and the shortest tail."""
    if not jobs:
        return 0.0
    return min(head for head, _, _ in jobs) + sum(work for _, work, _ in jobs) + min(tail for _, _, tail in jobs)


def _jobs(found: Sequence[Way], worker: int, split: bool) -> Iterator[Job]:
    """A worker's jobs: all micro-batches of a kind on a run are one, and its step."""
    for way in found:
        for r, counts in enumerate(way.counts):
            if count := counts.get(worker, 0):
                yield way.begins[r], count * way.forward[r], way.after_forward[r]
                yield way.returns[r], count * way.backward[r], way.after_backward[r]
                if split:
                    yield way.returns[r] + way.backward[r], count * way.weight[r], way.after_weight[r]
                if way.step[r] and len(counts) == 1:  # else it may be either's
                    yield way.steps[r], way.step[r], way.after_step[r]


def _messages(found: Sequence[Way], cluster: Cluster) -> dict[object, list[Job]]:
    """Channel to its jobs: values, and gradients on the way back."""
    held: dict[object, list[Job]] = {}
    if all(link.bandwidth == math.inf and not link.latency for link in cluster.links):
        return held
    for way in found:
        for r, q in way.travel:
            size = way.pieces[r].out_bytes
            for a, b, count in channels_of(way, r, q):
                there, back = cluster.links[cluster.link(a, b)], cluster.links[cluster.link(b, a)]
                seconds = size / there.bandwidth
                tail = there.latency + way.forward[q] + way.after_forward[q]
                jobs = held.setdefault(key_of(cluster, a, b), [])
                jobs.append((way.begins[r] + way.forward[r], count * seconds, tail))
                seconds = size / back.bandwidth
                tail = back.latency + way.backward[r] + way.after_backward[r]
                jobs = held.setdefault(key_of(cluster, b, a), [])
                jobs.append((way.returns[q] + way.backward[q], count * seconds, tail))
    return held


def _memory(found: Sequence[Way], worker: int, limit: float) -> float:
    if limit == math.inf:
        return 0.0
    area, head, tail = 0.0, math.inf, math.inf
    for way in found:
        trips = round_trips(way)
        for r, counts in enumerate(way.counts):
            size = way.pieces[r].held_bytes
            if size and worker in counts:
                area += counts[worker] * size * trips[r]
                head, tail = min(head, way.begins[r]), min(tail, way.after_step[r])
    return head + area / limit + tail if area else 0.0
