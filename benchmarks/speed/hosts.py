"""What a host takes to launch, from two rows on one device: every layer a task of its own, and a subnet one task.

    layers    n tasks of one layer        ▒▓ ▒▓ ▒▓ ▒▓        ▒ between tasks    ▓ launches, as the trace tells (`host`)
    stages    few of many                 ▒▓▓▓▓

Two rows tell what a task costs and what each of its layers does; what is between tasks, what comes before each of them,
and with each subnet. In `stages` all wait for the device, the host for each loss that it tells: that is left out
(`waited`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from sennit.simulate.launched import Launches
from sennit.trace.span import Span

HALF = 0.6
"""Of a whole backward, what each half of a split one takes to launch: some things are done once for each. Assumed,
where no row `stages split` tells."""

Told = Mapping[str, tuple[float, float]]


def hosts_of(spans: Iterable[Span], sampled: range) -> dict[str, tuple[float, float]] | None:
    """Of one worker, per subnet: seconds that its host launches forwards, backwards and steps, and those between them,
    each with how many there are. None if the trace does not tell.

    Args:
        spans: those of the subnets before and behind among them.
    """
    held = sorted(spans, key=lambda span: span.launched)
    if not held or not all(span.host for span in held):
        return None
    begin, end = (min(span.launched for span in held if span.seq_id == y) for y in (sampled.start, sampled.stop))
    held, n = [span for span in held if begin <= span.launched <= end], len(sampled)
    gaps = [max(0.0, two.launched - one.launched - one.host) for one, two in pairwise(held)]
    del held[-1]  # the first behind them
    found = {
        kind: (sum(s.host - s.waited for s in held if s.kind == kind) / n, sum(s.kind == kind for s in held) / n)
        for kind in "FBUIW"
    }  # fmt: skip
    found["between"] = sum(gaps) / n, len(gaps) / n
    return found


def launches_of(alone: Told, joined: Told | None, layers: float, groups: float, halves: Told | None = None) -> Launches:
    """What a host takes.

    Args:
        alone: of the row `layers`.
        joined: of `stages`; without it, all is taken to be the layers'.
        halves: of `stages split`; without it, each half of a backward takes `HALF`.
        layers: that a subnet's forwards launch, all micro-batches together.
        groups: that it steps.
    """
    forward, forward_layer = _two(alone["F"], joined and joined["F"], layers)
    backward, backward_layer = _two(alone["B"], joined and joined["B"], layers)
    step, step_group = _two(alone["U"], joined and joined["U"], groups)
    between, gaps = alone["between"]
    task, subnet = _two(alone["between"], joined["between"], 1) if joined else (between / gaps, 0.0)
    inputs = weights = HALF * backward_layer
    if halves:
        inputs, weights = (max(0.0, (s - n * backward) / layers) for s, n in (halves["I"], halves["W"]))
    return Launches(
        task=task, forward=forward, backward=backward, forward_layer=forward_layer, backward_layer=backward_layer,
        input_layer=inputs, weight_layer=weights, step=step, step_group=step_group, subnet=subnet,
    )  # fmt: skip


def _two(alone: tuple[float, float], joined: tuple[float, float] | None, parts: float) -> tuple[float, float]:
    """Seconds of one, and of each of its parts."""
    (many_s, many), (few_s, few) = alone, joined or (0.0, 0.0)
    if not joined or few >= many:
        return 0.0, many_s / parts if parts else 0.0
    one = min(max(0.0, (many_s - few_s) / (many - few)), many_s / many)
    return one, max(0.0, few_s - few * one) / parts if parts else 0.0


def shown(row: Mapping[str, Any]) -> Told | None:
    """What a row has told of its host; a file has lists for pairs."""
    held = row.get("hosts")
    return None if not held else {kind: (pair[0], pair[1]) for kind, pair in held.items()}
