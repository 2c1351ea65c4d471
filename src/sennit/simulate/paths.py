"""How early each task can start and how much must follow it, if every run had a worker of its own.

Dependencies are followed at the granularity of runs (a layer, if every layer is a run), for the first and the last
micro-batch of a subnet on a run; in between its worker needs its time for all of them:

    head    begin(r) = max(open(r), first(s) ...)                 open: all groups of r are in the version that y reads,
                                                                  and earlier subnets have written its buffers
            first(r) = begin(r) + f                               s: the runs whose output it reads
            last(r)  = max(last(s) + f ..., begin(r) + M f)       and the same backwards
    tail    after(r) = max(f' + after(q) ...)                     q: the runs that read its output. The rest of one
                                                                  micro-batch's way, and at its end what waits for the
                                                                  versions that it makes

Heads are found subnet by subnet, tails from the last subnet to the first. Messages take the time of free channels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sennit.simulate.branches import Branches
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
        step: of the run's groups, after its last gradient.
        sources, readers: runs whose output a run reads, and that read its.
        travel: of a value from a run to one that reads it, or of its gradient back, at least.
        begins, returns, steps: earliest start of a forward, of a backward, and of the step.
        reads: per run, group and version that it waits for.
        after_forward, after_backward, after_weight, after_step: what must at least follow the end of one.
        end: earliest end of the subnet.
    """

    pieces: Sequence[Piece]
    counts: list[dict[int, int]]
    forward: list[float]
    backward: list[float]
    weight: list[float]
    step: list[float]
    sources: Sequence[Sequence[int]]
    readers: Sequence[Sequence[int]]
    travel: dict[tuple[int, int], float]
    begins: list[float]
    returns: list[float]
    steps: list[float]
    reads: list[list[tuple[str, int]]]
    after_forward: list[float]
    after_backward: list[float]
    after_weight: list[float]
    after_step: list[float]
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
    moved: dict[str, float] = {}
    """Buffers to when the subnets so far have written them."""
    admitted, ended = 0.0, 0.0
    for y, pieces in enumerate(load.subnets()):
        sync.observe(y, dict.fromkeys(group for piece in pieces for group in piece.groups))
        if y >= in_flight:
            ended = max(ended, found[y - int(in_flight)].end)
            admitted = ended
        way = _way(pieces, load.micro_batches, split, cluster)
        way.reads = [[(g, v) for g in piece.groups if (v := sync.reads(g, y)) >= 0] for piece in pieces]
        _heads(y, way, admitted, versions, moved, cluster)
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
    branches = Branches(pieces, m)
    return Way(
        pieces, counts,
        [piece.cost.forward + host for piece in pieces],
        [(piece.cost.input if split else piece.cost.whole) + host for piece in pieces],
        [piece.cost.weight + host if split else 0.0 for piece in pieces],
        [piece.step for piece in pieces],
        branches.sources, branches.readers,
        {(r, q): _travel(pieces[r], pieces[q], m, cluster) for r in range(n) for q in branches.readers[r]},
        [0.0] * n, [0.0] * n, [0.0] * n, [], [0.0] * n, [0.0] * n, [0.0] * n, [0.0] * n,
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


def _heads(
    y: int, way: Way, admitted: float, versions: dict[str, dict[int, float]], moved: dict[str, float], cluster: Cluster
) -> None:
    """Earliest starts; notes when the versions that the subnet makes are there, and its buffers written."""
    pieces, travel = way.pieces, way.travel
    first, last = [admitted] * len(pieces), [admitted] * len(pieces)
    for r, piece in enumerate(pieces):
        f, sources = way.forward[r], way.sources[r]
        opens = [_there(versions.get(group, {}), version) for group, version in way.reads[r]]
        came = [first[s] + travel[s, r] for s in sources]
        turns = [moved.get(group, 0.0) for group in piece.moves]
        way.begins[r] = begin = max([admitted + _fetched(piece, cluster), *came, *opens, *turns])
        all_came = max((last[s] + travel[s, r] for s in sources), default=admitted)
        in_turn = sum(way.counts[r].values()) if piece.moves else way.most(r)
        first[r], last[r] = begin + f, max(all_came + f, begin + in_turn * f)
    for r, piece in enumerate(pieces):
        moved.update((group, max(moved.get(group, 0.0), last[r])) for group in piece.moves)
    made: dict[str, float] = {}
    for r in reversed(range(len(pieces))):
        b, w, readers = way.backward[r], way.weight[r], way.readers[r]
        way.returns[r] = begin = max((first[q] + travel[r, q] for q in readers), default=first[r])
        all_came = max((last[q] + travel[r, q] for q in readers), default=last[r])
        first[r], last[r] = begin + b, max(all_came + b, begin + way.most(r) * b)
        way.steps[r] = max(last[r] + w, begin + way.most(r) * (b + w))
        done = way.steps[r] + way.step[r]
        for group in pieces[r].groups:
            made[group] = max(made.get(group, 0.0), done + pieces[r].reach)
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
    for r, piece in enumerate(way.pieces):
        read = [piece.reach + after_version[group] for group in piece.groups if group in after_version]
        way.after_step[r] = max([after_end, *read])
        way.after_weight[r] = way.step[r] + way.after_step[r]
        on = [way.travel[s, r] + way.backward[s] + way.after_backward[s] for s in way.sources[r]]
        way.after_backward[r] = max([way.weight[r] + way.after_weight[r], *on])
    for r in reversed(range(len(way.pieces))):
        on = [way.travel[r, q] + way.forward[q] + way.after_forward[q] for q in way.readers[r]]
        way.after_forward[r] = max(on, default=way.backward[r] + way.after_backward[r])


def round_trips(way: Way) -> list[float]:
    """For each run, from the start of a micro-batch's forward there to the end of its backward, at least."""
    n = len(way.pieces)
    there, back = [0.0] * n, [0.0] * n
    for r in reversed(range(n)):
        there[r] = max((way.travel[r, q] + way.forward[q] + there[q] for q in way.readers[r]), default=0.0)
        back[r] = max((way.travel[r, q] + way.backward[q] + back[q] for q in way.readers[r]), default=0.0)
    return [way.forward[r] + there[r] + back[r] + way.backward[r] + way.weight[r] for r in range(n)]


def channels_of(way: Way, r: int, q: int) -> Iterable[tuple[int, int, int]]:
    """Messages from run r to run q: sender, receiver, how many."""
    held: dict[tuple[int, int], int] = {}
    for j in range(sum(way.counts[r].values())):
        ends = way.pieces[r].where(j), way.pieces[q].where(j)
        if ends[0] != ends[1]:
            held[ends] = held.get(ends, 0) + 1
    return [(*ends, count) for ends, count in held.items()]
