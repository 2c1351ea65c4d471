"""`prospect`: what a run could have taken. Its bubble simulated, a bound, what binds, and what one change would bring.

    trace ──▶ seconds of each block, forward and backward ──▶ the recipe's first subnets, simulated and bounded
                                                         └──▶ the same with one thing changed

Seconds are means over the subnets of the last call, so this is what the run tends to, without the time at cuts.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from sennit.errors import UserError
from sennit.profile.waits import Waits
from sennit.recipe import Placement, Recipe
from sennit.runtime.forecast import RecipeLoad, forecast
from sennit.runtime.placing import known_costs, plans_of
from sennit.runtime.scheduling import in_flight_of, policy_of, settled
from sennit.simulate.bounds import bounds
from sennit.simulate.load import Cost
from sennit.trace.span import Span

SUBNETS = 100
"""Subnets that are simulated, and whose tasks are looked at."""

FARTHEST = 2_000
"""Subnet before which the call must have begun: the stream is drawn up to there."""


@dataclass(frozen=True)
class Prospect:
    """What a run could have been.

    Attributes:
        subnets: that were simulated.
        bubble: simulated, with what tasks took on average.
        bubble_at_bound: below which no order can go.
        binds: dependencies or devices.
        levers: change to the bubble simulated with it, the best first. Changes of the recipe train other weights.
    """

    subnets: int
    bubble: float
    bubble_at_bound: float
    binds: str
    levers: dict[str, float]

    def lines(self) -> list[str]:
        """For people."""
        told = [
            f"  simulated, {self.subnets} subnets: bubble {self.bubble:.2f}; no order goes below "
            f"{self.bubble_at_bound:.2f} ({self.binds})"
        ]
        better = [f"{change} {bubble:.2f}" for change, bubble in self.levers.items() if bubble < self.bubble - 0.005]
        if better:
            told.append(f"  bubble with one change: {', '.join(better)}")
        return told


def prospect(recipe: Recipe, placement: Placement, spans: Sequence[Span]) -> Prospect | None:
    """Look back on a run.

    Args:
        placement: as it was asked for.
        spans: of its last call.

    Returns:
        None if its stream is drawn by what it learns, it ran nothing, or began too late in the stream.
    """
    built = recipe.built
    tasks = [span for span in spans if span.kind in "FBIW"]
    first = min((span.seq_id for span in tasks), default=FARTHEST)
    if built.sampler().learning or first >= FARTHEST or placement.workers < 2:
        return None
    held = settled(recipe, placement)
    waits = _waits(recipe, held, tasks, first)
    steps = min(SUBNETS, recipe.steps) // recipe.sync_rule.bulk(held.workers) * recipe.sync_rule.bulk(held.workers)
    if not steps:
        return None
    load = _load(recipe, held, waits, steps)
    outcome = forecast(load)
    bound = bounds(load, recipe.built.sync(held.workers), in_flight_of(recipe, held), split=held.split)
    levers: dict[str, float] = {}
    for name, changed, other, told in _levers(recipe, placement, waits):
        try:
            levers[name] = forecast(_load(changed, settled(changed, other), told, steps)).bubble
        except UserError:
            continue
    best_first = dict(sorted(levers.items(), key=lambda item: item[1]))
    return Prospect(steps, outcome.bubble, bound.bubble, bound.binds, best_first)


def _load(recipe: Recipe, held: Placement, waits: Waits, steps: int) -> RecipeLoad:
    return RecipeLoad(recipe, held, plans_of(recipe.built, held, waits=waits), waits, steps)


def _waits(recipe: Recipe, held: Placement, tasks: Sequence[Span], first: int) -> Waits:
    """Mean seconds of each block. A run's are shared out to its blocks as they were measured before, or evenly."""
    built = recipe.built
    costs = known_costs(built)
    load = RecipeLoad(recipe, held, plans_of(built, held, waits=costs), costs, first + SUBNETS)
    seconds: dict[tuple[int, int], dict[str, list[float]]] = {}
    for span in tasks:
        if span.seq_id < first + SUBNETS:
            kinds = seconds.setdefault((span.seq_id, span.run), {})
            kinds.setdefault(span.kind, []).append(span.end - span.start)
    found: dict[str, dict[str, list[float]]] = {}
    for y, runs in enumerate(islice(load.runs(), first, None), first):
        for run in runs:
            parts = {block: costs.total(block) for block in dict.fromkeys(step.block for step in run.steps)}
            whole = sum(parts.values())
            for kind, took in seconds.get((y, run.index), {}).items():
                for block, part in parts.items():
                    share = part / whole if whole else 1 / len(parts)
                    found.setdefault(block, {}).setdefault(kind, []).append(share * sum(took) / len(took))
    means = {block: {k: sum(s) / len(s) for k, s in kinds.items()} for block, kinds in found.items()}
    return Waits({block: _cost(mean) for block, mean in means.items()})


def _cost(mean: dict[str, float]) -> Cost:
    """Halves of a backward that was run whole are taken to cost half of it."""
    inputs, weight = mean.get("I", 0.0), mean.get("W", 0.0)
    whole = mean.get("B", inputs + weight)
    return Cost(mean.get("F", 0.0), whole, inputs or whole / 2, weight or whole / 2)


def _levers(recipe: Recipe, placement: Placement, waits: Waits) -> Iterator[tuple[str, Recipe, Placement, Waits]]:
    """Changes that could bring something, one at a time, as options or as lines of the recipe."""
    policy = policy_of(recipe, placement)
    n = in_flight_of(recipe, settled(recipe, placement))
    yield f"--in-flight {2 * n}", recipe, replace(placement, in_flight=2 * n), waits
    if policy.split is None and not placement.split:
        yield "--split", recipe, replace(placement, split=True), waits
    if placement.release == "stage" and "layer" in policy.releases:
        yield "--release layer", recipe, replace(placement, release="layer"), waits
    if policy.chunked and placement.plan is None:
        more = placement.chunks + 1
        if placement.workers * more <= len(waits.blocks):
            yield f"--chunks {more}", recipe, replace(placement, chunks=more), waits
    if recipe.batch_size % (2 * recipe.micro_batches) == 0:
        half = Waits({block: Cost(*(s / 2 for s in cost)) for block, cost in waits.blocks.items()})
        m = 2 * recipe.micro_batches
        yield f"micro_batches = {m}", _with(recipe, micro_batches=m), placement, half
    if recipe.sampler == "uniform" and recipe.sync_rule.kind == "csp":
        yield 'sampler = "fair"', _with(recipe, sampler="fair"), placement, waits
    if recipe.built.always[0] and recipe.sharing.kind == "strict" and recipe.sync_rule.kind == "csp":
        yield 'shared = "delayed:2"', _with(recipe, shared="delayed:2"), placement, waits


def _with(recipe: Recipe, **changes: Any) -> Recipe:
    """Another recipe with the same recorded programs."""
    made = replace(recipe, **changes)
    built = copy.copy(recipe.built)
    built.recipe = made
    made.__dict__["built"] = built
    return made
