"""How early each task can start and how much must follow it, if every run had a worker of its own.

Dependencies are followed at the granularity of runs (a layer, if every layer is a run), for the first and the last
micro-batch of a subnet on a run; in between its worker needs its time for all of them:

    head    begin(r) = max(open(r), first(r - 1))                 open: all groups of r are in the version that y reads
            first(r) = begin(r) + f
            last(r)  = max(last(r - 1) + f, begin(r) + M f)       and the same backwards
    tail    after(r) = f' + after(r + 1)                          the rest of one micro-batch's way, and at its end what
                                                                  waits for the versions that it makes

Heads are found subnet by subnet, tails from the last subnet to the first. Messages take the time of free channels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sennit.simulate.cluster import Cluster
from sennit.simulate.load import Load, Piece
from sennit.supernet.sync import Sync


@dataclass(slots=True)
class Way:
    """One subnet's way through its runs. Lists have an entry for each run, in seconds.

    Attributes:
        pieces: of the subnet.
        counts: per run, worker to how many micro-batches it has there.
        forward, backward: of one micro-batch, with the host's time; `backward` is I if backwards are split.
        weight: W of one micro-batch, with the host's time; 0 if they are not.
        travel: of a value from run r to run r + 1, or of its gradient back, at least.
        begins, returns: earliest start of a forward and of a backward.
        reads: per run, group and version that it waits for.
        after_forward, after_backward, after_weight: what must at least follow the end of one.
        end: earliest end of the subnet.
    """

    pieces: Sequence[Piece]
    counts: list[dict[int, int]]
    forward: list[float]
    backward: list[float]
    weight: list[float]
    travel: list[float]
    begins: list[float]
    returns: list[float]
    reads: list[list[tuple[str, int]]]
    after_forward: list[float]
    after_backward: list[float]
    after_weight: list[float]
    end: float = 0.0

    def most(self, r: int) -> int:
        """Micro-batches of the worker that has most of a run."""
        return max(self.counts[r].values())


def ways(load: Load, sync: Sync, in_flight: float, *, split: bool, cluster: Cluster) -> list[Way]:
    """Heads and tails of a whole stream.

    Args:
        sync: which versions are read; a fresh one.
        in_flight: from the lowest unfinished subnet on, so many may be in flight.
    """
    found: list[Way] = []
    versions: dict[str, dict[int, float]] = {}
    """Group to version to when it is there."""
    admitted, ended = 0.0, 0.0
    for y, pieces in enumerate(load.subnets()):
        assert all(piece.sources is None for piece in pieces), "bounds know chains alone"
        sync.observe(y, dict.fromkeys(group for piece in pieces for group in piece.groups))
        if y >= in_flight:
            ended = max(ended, found[y - int(in_flight)].end)
            admitted = ended
        way = _way(pieces, load.micro_batches, split, cluster)
        way.reads = [[(g, v) for g in piece.groups if (v := sync.reads(g, y)) >= 0] for piece in pieces]
        _heads(y, way, admitted, versions, cluster)
        sync.forget(y)
        found.append(way)
    _tails(found, in_flight, cluster)
    return found


def _way(pieces: Sequence[Piece], m: int, split: bool, cluster: Cluster) -> Way:
    n, host = len(pieces), cluster.host_s
    counts: list[dict[int, int]] = []
    for piece in pieces:
        held: dict[int, int] = {}
        for j in range(m):
            held[piece.where(j)] = held.get(piece.where(j), 0) + 1
        counts.append(held)
    return Way(
        pieces, counts,
        [piece.cost.forward + host for piece in pieces],
        [(piece.cost.input if split else piece.cost.whole) + host for piece in pieces],
        [piece.cost.weight + host if split else 0.0 for piece in pieces],
        [_travel(pieces[r], pieces[r + 1], m, cluster) for r in range(n - 1)],
        [0.0] * n, [0.0] * n, [], [0.0] * n, [0.0] * n, [0.0] * n,
    )  # fmt: skip


def _travel(piece: Piece, following: Piece, m: int, cluster: Cluster) -> float:
    """Of a value to the next run, or of its gradient back: the least of any micro-batch."""
    if not cluster.links:
        return 0.0
    ends = {(piece.where(j), following.where(j)) for j in range(m)}
    return min(min(cluster.seconds(a, b, piece.out_bytes), cluster.seconds(b, a, piece.out_bytes)) for a, b in ends)


def _fetched(piece: Piece, cluster: Cluster) -> float:
    """How long a run's layers need from the host."""
    return cluster.swap.seconds(piece.swap_bytes) if cluster.swap and piece.swap_bytes else 0.0


def _heads(y: int, way: Way, admitted: float, versions: dict[str, dict[int, float]], cluster: Cluster) -> None:
    """Earliest starts; notes when the versions that the subnet makes are there."""
    pieces = way.pieces
    first = last = admitted
    for r, piece in enumerate(pieces):
        travel, f = way.travel[r - 1] if r else 0.0, way.forward[r]
        opens = [_there(versions.get(group, {}), version) for group, version in way.reads[r]]
        begin = max([first + travel, admitted + _fetched(piece, cluster), *opens])
        first, last = begin + f, max(last + travel + f, begin + way.most(r) * f)
        way.begins[r] = begin
    made: dict[str, float] = {}
    for r in reversed(range(len(pieces))):
        travel, b, w = way.travel[r] if r + 1 < len(pieces) else 0.0, way.backward[r], way.weight[r]
        begin = first + travel
        first, last = begin + b, max(last + travel + b, begin + way.most(r) * b)
        done = max(last + w, begin + way.most(r) * (b + w))
        way.returns[r] = begin
        for group in pieces[r].groups:
            made[group] = max(made.get(group, 0.0), done)
        way.end = max(way.end, done)
    for group, done in made.items():
        versions.setdefault(group, {})[y] = done


def _there(made: dict[int, float], version: int) -> float:
    """When a version is there: it holds all earlier gradients, too. Versions before it are not asked for again."""
    there = 0.0
    for x in [x for x in made if x <= version]:
        there = max(there, made[x])
        if x < version:
            del made[x]
    if version in made:
        made[version] = there
    return there


def _tails(found: Sequence[Way], in_flight: float, cluster: Cluster) -> None:
    """What must follow each task, from the last subnet to the first."""
    waiting: dict[str, dict[int, float]] = {}
    """Group to version to what follows once it is there, by the readers seen so far."""
    after_version: dict[str, float] = {}
    """The most of those at or above the subnet that is looked at."""
    from_entry = [0.0] * len(found)
    """What follows the admission of a subnet, or of one after it."""
    for y in reversed(range(len(found))):
        way = found[y]
        after_end = from_entry[y + int(in_flight)] if y + in_flight < len(found) else 0.0
        for group in {group for piece in way.pieces for group in piece.groups}:
            held = waiting.get(group, {})
            for version in [version for version in held if version >= y]:
                after_version[group] = max(after_version.get(group, 0.0), held.pop(version))
        _subnet_tails(way, after_version, after_end)
        entry = from_entry[y + 1] if y + 1 < len(found) else 0.0
        for r, (piece, f) in enumerate(zip(way.pieces, way.forward, strict=True)):
            opened = way.most(r) * f + way.after_forward[r]
            entry = max(entry, _fetched(piece, cluster) + opened)
            for group, version in way.reads[r]:
                held = waiting.setdefault(group, {})
                held[version] = max(held.get(version, 0.0), opened)
        from_entry[y] = entry


def _subnet_tails(way: Way, after_version: dict[str, float], after_end: float) -> None:
    n = len(way.pieces)
    for r, piece in enumerate(way.pieces):
        way.after_weight[r] = max([after_end, *(after_version.get(group, 0.0) for group in piece.groups)])
        on = way.travel[r - 1] + way.backward[r - 1] + way.after_backward[r - 1] if r else 0.0
        way.after_backward[r] = max(way.weight[r] + way.after_weight[r], on)
    way.after_forward[-1] = way.backward[-1] + way.after_backward[-1]
    for r in reversed(range(n - 1)):
        way.after_forward[r] = way.travel[r] + way.forward[r + 1] + way.after_forward[r + 1]


def round_trip(way: Way, r: int) -> float:
    """From the start of a micro-batch's forward on run r to the end of its backward there, at least."""
    later = range(r + 1, len(way.pieces))
    there = sum(2 * way.travel[s - 1] + way.forward[s] + way.backward[s] for s in later)
    return way.forward[r] + there + way.backward[r] + way.weight[r]


def channels_of(way: Way, r: int) -> Iterable[tuple[int, int, int]]:
    """Messages from run r to run r + 1: sender, receiver, how many."""
    held: dict[tuple[int, int], int] = {}
    for j in range(sum(way.counts[r].values())):
        ends = way.pieces[r].where(j), way.pieces[r + 1].where(j)
        if ends[0] != ends[1]:
            held[ends] = held.get(ends, 0) + 1
    return [(*ends, count) for ends, count in held.items()]
