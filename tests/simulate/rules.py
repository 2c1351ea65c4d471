"""What every simulated schedule must keep, checked from its spans alone, by code that knows nothing of the engine.

Each rule is a function from a `Case` and its spans to the violations it finds; `violations` runs them all. The rules:

    once        every task of every subnet runs exactly once, on the worker that has it
    duration    it takes its cost and what the host needs, and the last gradient of a run its step, if that is not apart
    steps       a run with a step is stepped once, where its last gradient is made, all that are due there at once;
                under csp not before a backward of the same subnet or an earlier one that is ready there
    alone       a worker does one thing at a time
    value       a forward follows the forwards of the runs whose output it reads, by the time on the way
    loss        the last run's backward follows its forward
    gradient    a backward follows the backwards of the runs that read its output, by the time on the way; their steps
                may be still to come
    weight      a W follows its I
    version     a forward follows all gradients that are in the versions it reads, their steps, and the way to it
    turn        a forward that writes buffers follows all that write them before, by subnet, micro-batch and run
    in flight   a subnet starts when those so far before it have ended
    channel     what a channel carries in a time fits into that time
    memory      activations held on a worker stay under its limit
    swap        a run's layers have come from the host before its first forward
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations, pairwise

from sennit.simulate.cluster import Cluster
from sennit.simulate.load import Piece
from sennit.trace.span import Span

EPS = 1e-9

Key = tuple[str, int, int, int]
"""Kind, subnet, micro-batch, run."""


@dataclass(frozen=True)
class Fixed:
    """A load given piece by piece."""

    workers: int
    micro_batches: int
    stream: tuple[tuple[Piece, ...], ...]

    def subnets(self) -> Iterator[Sequence[Piece]]:
        return iter(self.stream)


@dataclass(frozen=True)
class Case:
    """What was simulated.

    Attributes:
        included: subnet and group to the subnets whose gradients are in the version it reads.
        apart: whether steps are work of their own.
        free: whether the order gives whatever is ready.
    """

    load: Fixed
    in_flight: int
    split: bool
    included: Callable[[int, str], list[int]]
    cluster: Cluster
    apart: bool = False
    free: bool = False

    @property
    def kinds(self) -> str:
        return "FIW" if self.split else "FB"

    @property
    def last(self) -> str:
        """The kind that makes gradients of weights."""
        return self.kinds[-1]

    @cached_property
    def holders(self) -> dict[str, list[tuple[int, int]]]:
        """Group to the (subnet, run) that hold it."""
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for y, pieces in enumerate(self.load.stream):
            for r, piece in enumerate(pieces):
                for group in piece.groups:
                    found[group].append((y, r))
        return found

    def piece(self, key: Key) -> Piece:
        return self.load.stream[key[1]][key[3]]

    def sources(self, y: int, r: int) -> Sequence[int]:
        """Runs whose output a run reads."""
        told = self.load.stream[y][r].sources
        return told if told is not None else (r - 1,) * (r > 0)

    def readers(self, y: int, r: int) -> Sequence[int]:
        """Runs that read its output."""
        return [q for q in range(len(self.load.stream[y])) if r in self.sources(y, q)]

    def worker(self, key: Key) -> int:
        piece = self.piece(key)
        return piece.spread[key[2]] if piece.spread else piece.worker


def writers_before(case_load: Fixed, group: str, end: int) -> list[int]:
    """Subnets below `end` that hold a group."""
    return [x for x in range(max(end, 0)) if any(group in piece.groups for piece in case_load.stream[x])]


class Shown:
    """The spans of a case, by task."""

    def __init__(self, case: Case, spans: Sequence[Span], steps: Sequence[Span] = ()) -> None:
        self.case, self.spans, self.steps = case, spans, steps
        self.start = {key_of(span): span.start for span in spans}
        self.end = {key_of(span): span.end for span in spans}
        self.left = self.end | {
            key: self.end[key] - case.piece(key).step for key in self.end if not case.apart and self.last(key)
        }
        """When values and gradients leave: before the step, if it ends the last gradient of a run."""
        self.unlike: list[str] = []
        """Steps that are not what is due."""
        self.done = {
            (y, r): max(self.end[case.last, y, j, r] for j in range(case.load.micro_batches))
            for y, pieces in enumerate(case.load.stream) for r in range(len(pieces))
        }  # fmt: skip
        """When the groups of a run, by subnet, have their new versions."""
        if case.apart:
            self.done |= self.stepped()
        for (y, r), end in self.done.items():
            self.done[y, r] = end + case.load.stream[y][r].reach
        self.ends = [
            max(self.done[y, r] for r in range(len(pieces))) for y, pieces in enumerate(case.load.stream)
        ]  # fmt: skip

    def last(self, key: Key) -> bool:
        """Whether it is the last gradient of weights of its run."""
        kind, y, _, r = key
        others = [(kind, y, i, r) for i in range(self.case.load.micro_batches)]
        return kind == self.case.last and self.end[key] == max(self.end[other] for other in others)

    def stepped(self) -> dict[tuple[int, int], float]:
        """When runs that have a step have ended it."""
        found: dict[tuple[int, int], float] = {}
        left = {use: self.makers(*use) for use in self.done if self.step(*use)}
        for span in sorted(self.steps, key=lambda span: span.start):
            due = [use for use in left if self.done[use] <= span.start + EPS and span.worker in left[use]]
            sure = [use for use in due if len(left[use]) == 1]
            other = [use for use in due if len(left[use]) > 1]  # two gradients end together: either may be the last
            for some in chain.from_iterable(combinations(other, n) for n in range(len(other) + 1)):
                together = [*sure, *some]
                if together and abs(span.end - span.start - sum(self.step(*use) for use in together)) <= EPS:
                    break
            else:
                self.unlike.append(f"{span} is none of {due}")
                together = due
            if self.case.free:
                self.unlike += self.put_first(span, min((y for y, _ in together), default=-1))
            found |= dict.fromkeys(together, span.end)
            for use in together:
                del left[use]
        self.unlike += [f"{use} is never stepped" for use in left]
        return found

    def makers(self, y: int, r: int) -> set[int]:
        """Workers that make a run's last gradient."""
        keys = [(self.case.last, y, j, r) for j in range(self.case.load.micro_batches)]
        return {self.case.worker(key) for key in keys if self.end[key] == self.done[y, r]}

    def step(self, y: int, r: int) -> float:
        return self.case.load.stream[y][r].step

    def put_first(self, step: Span, y: int) -> Iterator[str]:
        for span in self.spans:
            mine = span.worker == step.worker and span.kind in "BI" and span.seq_id <= y
            if mine and span.ready < step.start - EPS and span.start > step.start:
                yield f"{step} before {key_of(span)}"

    def follows(self, key: Key, before: Key, size: float = 0.0) -> Iterator[str]:
        seconds = self.case.cluster.seconds(self.case.worker(before), self.case.worker(key), size)
        if self.start[key] < self.left[before] + seconds - EPS:
            yield f"{key} starts at {self.start[key]}, {before} is done at {self.left[before]}, {seconds} on the way"


def key_of(span: Span) -> Key:
    return span.kind, span.seq_id, span.micro_batch, span.run


def once(case: Case, spans: Sequence[Span]) -> Iterator[str]:
    wanted = {
        (kind, y, j, r)
        for y, pieces in enumerate(case.load.stream) for r in range(len(pieces))
        for j in range(case.load.micro_batches) for kind in case.kinds
    }  # fmt: skip
    seen: set[Key] = set()
    for span in spans:
        key = key_of(span)
        if key in seen:
            yield f"{key} runs twice"
        if key in wanted and span.worker != case.worker(key):
            yield f"{key} runs on worker {span.worker}"
        seen.add(key)
    if seen != wanted:
        yield f"left out {wanted - seen}, added {seen - wanted}"


def duration(case: Case, shown: Shown) -> Iterator[str]:
    for span in shown.spans:
        piece = case.piece(key_of(span))
        seconds = piece.cost["FBIW".index(span.kind)] + case.cluster.host_s
        if not case.apart and shown.last(key_of(span)):
            seconds += piece.step
        if abs(span.end - span.start - seconds) > EPS:
            yield f"{key_of(span)} takes {span.end - span.start}, not {seconds}"


def steps(case: Case, shown: Shown) -> Iterator[str]:
    yield from shown.unlike


def alone(case: Case, shown: Shown) -> Iterator[str]:
    for worker in range(case.load.workers):
        mine = sorted((s.start, s.end) for s in (*shown.spans, *shown.steps) if s.worker == worker)
        yield from (f"worker {worker}: {a} and {b}" for a, b in pairwise(mine) if a[1] > b[0] + EPS)


def value(case: Case, shown: Shown) -> Iterator[str]:
    for key in shown.start:
        kind, y, j, r = key
        for s in case.sources(y, r) if kind == "F" else ():
            yield from shown.follows(key, ("F", y, j, s), case.load.stream[y][s].out_bytes)


def loss(case: Case, shown: Shown) -> Iterator[str]:
    for key in shown.start:
        kind, y, j, r = key
        if kind in "BI" and r + 1 == len(case.load.stream[y]):
            yield from shown.follows(key, ("F", y, j, r))


def gradient(case: Case, shown: Shown) -> Iterator[str]:
    for key in shown.start:
        kind, y, j, r = key
        for q in case.readers(y, r) if kind in "BI" else ():
            yield from shown.follows(key, (kind, y, j, q), case.load.stream[y][r].out_bytes)


def weight(case: Case, shown: Shown) -> Iterator[str]:
    for key in shown.start:
        if key[0] == "W":
            yield from shown.follows(key, ("I", *key[1:]))


def version(case: Case, shown: Shown) -> Iterator[str]:
    for key in shown.start:
        kind, y, _, _ = key
        if kind != "F":
            continue
        for group in case.piece(key).groups:
            for x in case.included(y, group):
                for s in [s for z, s in case.holders[group] if z == x]:
                    if shown.start[key] < shown.done[x, s] - EPS:
                        yield f"{key} reads {group} before run {s} of subnet {x} has made it"


def turn(case: Case, shown: Shown) -> Iterator[str]:
    order: dict[str, list[Key]] = defaultdict(list)
    for y, pieces in enumerate(case.load.stream):
        for j in range(case.load.micro_batches):
            for r, piece in enumerate(pieces):
                for group in piece.moves:
                    order[group].append(("F", y, j, r))
    for group, keys in order.items():
        for before, key in pairwise(keys):
            if shown.start[key] < shown.end[before] - EPS:
                yield f"{key} writes {group} before {before} has"


def in_flight(case: Case, shown: Shown) -> Iterator[str]:
    for y in range(case.in_flight, len(case.load.stream)):
        first = min(start for key, start in shown.start.items() if key[:2] == ("F", y))
        for x in range(y - case.in_flight + 1):
            if shown.ends[x] > first + EPS:
                yield f"subnet {y} starts at {first}, subnet {x} ends at {shown.ends[x]}"


def channel(case: Case, shown: Shown) -> Iterator[str]:
    """Of the messages made from some time on, the first k to be used need the channel for all k."""
    links = case.cluster.links
    messages: dict[object, list[tuple[float, float, float, float]]] = defaultdict(list)
    for key in shown.start:
        kind, y, j, r = key
        if kind == "F":
            edges = [(("F", y, j, s), s) for s in case.sources(y, r)]
        else:
            edges = [((kind, y, j, q), r) for q in case.readers(y, r)] if kind in "BI" else []
        for before, made in edges:
            a, b = case.worker(before), case.worker(key)
            if a == b or not links:
                continue
            i = case.cluster.link(a, b)
            medium = links[i].medium
            name = (i,) if medium == "shared" else (i, a, b) if medium == "duplex" else (i, min(a, b), max(a, b))
            size = case.load.stream[y][made].out_bytes
            messages[name].append(
                (shown.left[before], shown.start[key], size / links[i].bandwidth, links[i].latency)
            )  # fmt: skip
    for name, sent in messages.items():
        for begin in {made for made, _, _, _ in sent}:
            busy = 0.0
            for _, used, seconds, latency in sorted((m for m in sent if m[0] >= begin), key=lambda m: m[1]):
                busy += seconds
                if used < begin + busy + latency - EPS:
                    yield f"channel {name} carries {busy} s between {begin} and {used}"


def memory(case: Case, shown: Shown) -> Iterator[str]:
    limits = case.cluster.limits(case.load.workers)
    moves: dict[int, list[tuple[float, int, float]]] = defaultdict(list)
    for key in shown.start:
        if key[0] == "F":
            size = case.piece(key).held_bytes
            moves[case.worker(key)].append((shown.start[key], 1, size))
            moves[case.worker(key)].append((shown.end[case.last, *key[1:]], 0, -size))
    for worker, changes in moves.items():
        held = 0.0
        for at, _, size in sorted(changes):
            held += size
            if held > limits[worker] * (1 + EPS):
                yield f"worker {worker} holds {held} at {at}"


def swap(case: Case, shown: Shown) -> Iterator[str]:
    link = case.cluster.swap
    if link is None:
        return
    loads: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
    for y, pieces in enumerate(case.load.stream):
        begin = max(shown.ends[: max(y - case.in_flight + 1, 0)], default=0.0)
        for r, piece in enumerate(pieces):
            if piece.swap_bytes:
                for worker in set(piece.spread) or {piece.worker}:
                    used = min(shown.start["F", y, j, r] for j in range(case.load.micro_batches))
                    loads[-1 if link.medium == "shared" else worker].append(
                        (begin, used, piece.swap_bytes / link.bandwidth)
                    )
    for worker, held in loads.items():
        for begin in {at for at, _, _ in held}:
            busy = 0.0
            for _, used, seconds in sorted((m for m in held if m[0] >= begin), key=lambda m: m[1]):
                busy += seconds
                if used < begin + busy + link.latency - EPS:
                    yield f"worker {worker}: layers take {busy} s, used at {used}, asked for at {begin}"


RULES: dict[str, Callable[[Case, Shown], Iterator[str]]] = {
    "duration": duration, "steps": steps, "alone": alone, "value": value, "loss": loss, "gradient": gradient,
    "weight": weight, "version": version, "turn": turn, "in flight": in_flight, "channel": channel, "memory": memory,
    "swap": swap,
}  # fmt: skip


def violations(case: Case, spans: Sequence[Span]) -> list[str]:
    """All that is broken, each with the name of its rule."""
    tasks = [span for span in spans if span.kind != "U"]
    missing = list(once(case, tasks))
    if missing:
        return [f"once: {said}" for said in missing]
    shown = Shown(case, tasks, [span for span in spans if span.kind == "U"])
    return [f"{name}: {said}" for name, rule in RULES.items() for said in rule(case, shown)]
