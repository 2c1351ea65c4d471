"""`Prices`: what layers take by one executor, measured in a run that has every layer as a task of its own.

    span of a task (device time, one layer)  ──mean──▶  price of (kind of layer, shape of the batch)
    kinds and shapes that were not met       ──────────▶  the profile's seconds, times what others took of theirs

A task with several steps (functions between layers go with the layer before) is shared out as the profile says. The
last backward of a subnet in a layer steps it; what that one takes longer than the others is the step. With one
micro-batch it cannot be told from the backward, and stays in it. Where steps are outside of tasks (on GPUs, whose norms
are told late) they are shared out to layers by the bytes of their parameters, and a backward is all that it takes.

Of the same layers in tasks of several, forwards, backwards and steps take other `Shares` of that, each by itself: a
device waits less for launches, which are most of a small layer's forward and step, and little of its backward.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

from sennit.profile.profile import Profile
from sennit.program.cut import Run
from sennit.program.step import Step
from sennit.simulate.load import Cost
from sennit.trace.span import Span


class Shares(NamedTuple):
    """A number each for forwards, backwards, steps and the halves of split backwards: seconds, or what prices are
    multiplied by; those of halves are backwards'."""

    forward: float = 1.0
    backward: float = 1.0
    step: float = 1.0
    input: float = 0.5
    weight: float = 0.5

    def by(self, factor: float) -> Shares:
        return Shares(*(factor * share for share in self))


ALIKE = Shares()


@dataclass(frozen=True)
class Prices:
    """Seconds of one micro-batch.

    Attributes:
        found: by shape and kind, forward and backward.
        ratios: by shape, what was measured over what the profile says, forward and backward.
        stepping: by kind, seconds of its step.
    """

    profile: Profile
    found: Mapping[str, Mapping[int, tuple[float, float]]]
    ratios: Mapping[str, tuple[float, float]]
    stepping: Mapping[int, float] = field(default_factory=dict[int, float])

    def at(self, shape: str, times: Shares = ALIKE) -> ShapePrices:
        """For batches of a shape; of one that was not met, those of another."""
        return ShapePrices(self, shape if shape in self.found else next(iter(self.found)), times)

    def of(self, shape: str, step: str) -> tuple[float, float]:
        number = self.profile.steps.get(step)
        if number is None:
            return 0.0, 0.0
        if (price := self.found[shape].get(number)) is not None:
            return price
        kind, (forward, backward) = self.profile.kinds[number], self.ratios[shape]
        return forward * kind.forward, backward * kind.backward

    def step(self, steps: Iterable[Step]) -> float:
        """Seconds that the layers of a run step."""
        numbers = (self.profile.steps.get(step.name) for step in steps)
        return sum(self.stepping.get(n, 0.0) for n in numbers if n is not None)


@dataclass(frozen=True)
class ShapePrices:
    """`Costs` of batches of one shape."""

    prices: Prices
    shape: str
    times: Shares

    def of_steps(self, steps: Iterable[Step]) -> Cost:
        pairs = [self.prices.of(self.shape, step.name) for step in steps]
        forward, backward = map(sum, zip(*pairs, strict=True)) if pairs else (0.0, 0.0)
        t = self.times
        return Cost(t.forward * forward, t.backward * backward, t.input * backward, t.weight * backward)


def prices_of(
    spans: Iterable[Span], runs: Mapping[int, Sequence[Run]], shapes: Mapping[int, str], profile: Profile
) -> Prices:
    """Means over the spans of tasks.

    Args:
        runs: of each subnet, as they were executed.
        shapes: of each subnet's batch.
    """
    tasks: dict[tuple[int, int], dict[str, list[Span]]] = {}
    outside = 0.0
    for span in spans:
        if span.seq_id not in runs:
            continue
        if span.kind == "U":
            outside += _seconds(span)
        elif span.kind in "FB":
            tasks.setdefault((span.seq_id, span.run), {"F": [], "B": []})[span.kind].append(span)
    laps: dict[str, dict[int, tuple[list[float], list[float]]]] = {}
    steps: dict[int, list[float]] = {}
    told: dict[str, list[tuple[float, float, float, float]]] = {}
    for (y, r), kinds in tasks.items():
        forward, (backward, step) = fmean(map(_seconds, kinds["F"])), _apart(kinds["B"], inside=not outside)
        known = [(n, profile.kinds[n]) for s in runs[y][r].steps if (n := profile.steps.get(s.name)) is not None]
        whole = (sum(k.forward for _, k in known), sum(k.backward for _, k in known))
        told.setdefault(shapes[y], []).append((forward, backward, *whole))
        weights = sum(k.parameter_bytes for _, k in known)
        for number, kind in known:
            mine = laps.setdefault(shapes[y], {}).setdefault(number, ([], []))
            mine[0].append(forward * (kind.forward / whole[0] if whole[0] else 1 / len(known)))
            mine[1].append(backward * (kind.backward / whole[1] if whole[1] else 1 / len(known)))
            if kind.parameter_bytes:
                steps.setdefault(number, []).append(step * kind.parameter_bytes / weights)
    numbers = [profile.steps.get(step.name) for held in runs.values() for run in held for step in run.steps]
    weights = sum(profile.kinds[n].parameter_bytes for n in numbers if n is not None)
    per_byte = outside / weights if weights else 0.0
    return Prices(
        profile,
        {shape: {n: (fmean(f), fmean(b)) for n, (f, b) in kinds.items()} for shape, kinds in laps.items()},
        {shape: _ratio(rows) for shape, rows in told.items()},
        {n: fmean(held) + per_byte * profile.kinds[n].parameter_bytes for n, held in steps.items()},
    )


def _seconds(span: Span) -> float:
    return span.end - span.start


def _apart(backwards: Sequence[Span], *, inside: bool) -> tuple[float, float]:
    """Seconds of a backward, and of the step behind the last one, if that is inside of it."""
    held = sorted(backwards, key=lambda span: span.start)
    if not held:
        return 0.0, 0.0
    if not inside:
        return fmean(map(_seconds, held)), 0.0
    others = [_seconds(span) for span in held[:-1]] or [_seconds(held[-1])]
    return fmean(others), max(0.0, _seconds(held[-1]) - fmean(others))


def _ratio(rows: Sequence[tuple[float, float, float, float]]) -> tuple[float, float]:
    forward, backward, f, b = (sum(column) for column in zip(*rows, strict=True))
    return forward / f if f else 1.0, backward / b if b else 1.0


@dataclass(frozen=True)
class HostCost:
    """What a host adds, seconds: for every task, and for every subnet on each worker."""

    task: float
    subnet: float

    def per_task(self, tasks: float, workers: int) -> float:
        """For a worker.

        Args:
            tasks: of a subnet, on all workers together.
        """
        return self.task + self.subnet * workers / tasks


def host_cost(*runs: tuple[float, float]) -> HostCost:
    """From runs on one device, where there is always something to do.

    Args:
        runs: of each, tasks of a subnet, and seconds per subnet in which the device had none; the more tasks first.
    """
    (tasks, idle), *fewer = runs
    if not fewer or fewer[0][0] >= tasks:
        return HostCost(max(0.0, idle / tasks), 0.0)
    few, rest = fewer[0]
    task = min(max(0.0, (idle - rest) / (tasks - few)), idle / tasks)
    return HostCost(task, max(0.0, rest - few * task))


def idle_of(spans: Iterable[Span], sampled: range) -> tuple[float, float, float]:
    """Of one worker: tasks of a subnet, and seconds per subnet between tasks and in them, from the first of the sampled
    subnets to the first behind them.

    Args:
        spans: those of the subnets before and behind among them.
    """
    held = sorted(spans, key=lambda span: span.start)
    begin, end = (min(span.start for span in held if span.seq_id == y) for y in (sampled.start, sampled.stop))
    inside = [span for span in held if begin <= span.start < end]
    busy, n = sum(map(_seconds, inside)), len(sampled)
    return sum(span.kind != "U" for span in inside) / n, max(0.0, end - begin - busy) / n, busy / n


def shares_of(spans: Iterable[Span], sampled: range) -> Shares:
    """Of one worker: seconds per subnet of each kind of task, steps told apart as for prices."""
    tasks: dict[tuple[int, int], list[Span]] = {}
    seconds = dict.fromkeys("FBUIW", 0.0)
    for span in spans:
        if span.seq_id in sampled:
            seconds[span.kind] += _seconds(span)
            if span.kind in "BW":
                tasks.setdefault((span.seq_id, span.run), []).append(span)
    inside = 0.0 if seconds["U"] else sum(_apart(held, inside=True)[1] for held in tasks.values())
    seconds["U"] += inside
    seconds["W" if seconds["W"] else "B"] -= inside
    return Shares(*(held / len(sampled) for held in seconds.values()))


def to_plain(prices: Prices) -> dict[str, Any]:
    """For the raw result."""
    return {"found": prices.found, "ratios": prices.ratios, "stepping": prices.stepping}


def from_plain(profile: Profile, held: Mapping[str, Any]) -> Prices:
    """What `to_plain` has made, from a file."""
    found = {shape: {int(n): (f, b) for n, (f, b) in kinds.items()} for shape, kinds in held["found"].items()}
    ratios = {shape: (f, b) for shape, (f, b) in held["ratios"].items()}
    return Prices(profile, found, ratios, {int(n): seconds for n, seconds in held["stepping"].items()})
