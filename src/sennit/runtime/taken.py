"""`taken`: what the steps of a run's programs took, from the spans of its tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sennit.recipe import Placement, Recipe
from sennit.runtime.fitted import Fitted, fitted
from sennit.runtime.forecast import RecipeLoad
from sennit.runtime.levers import Seconds
from sennit.runtime.placing import cut_by, known_costs, plans_of
from sennit.runtime.repeated import Recorded
from sennit.simulate.load import Cost
from sennit.trace.events import name_of
from sennit.trace.span import Span

TINY = 1e-9
"""Seconds, of a block that took none: it has some part."""


def taken(recipe: Recipe, held: Placement, tasks: Sequence[Span], first: int, count: int) -> Seconds:
    """What steps took, fitted to what tasks did; those of one task share as their blocks were measured, or evenly.

    What a backward takes after its gradient has left is taken for the optimizer's step.

    Args:
        held: the run's placement, settled.
        tasks: spans of F, B, I and W.
        first, count: the subnets that are looked at.
    """
    built = recipe.built
    costs = known_costs(built)
    plans = plans_of(built, held, waits=cut_by(built, held))
    load = RecipeLoad(recipe, held, plans, costs, first + count)
    sent = Recorded.of(tasks).sent
    took: dict[tuple[int, int], dict[str, list[float]]] = {}
    for span in tasks:
        if span.seq_id < first + count:
            kinds = took.setdefault((span.seq_id, span.run), {})
            after = sent.get(name_of(span), 0.0) if span.kind == "B" else 0.0
            kinds.setdefault(span.kind, []).append(span.end - span.start - after)
            kinds.setdefault("step", []).append(after)
    sums: dict[str, list[float]] = {}
    parts: dict[str, list[list[str]]] = {}
    start: dict[str, float] = {}
    block_of: dict[str, str] = {}
    for y, runs in enumerate(load.runs(first), first):
        for run in runs:
            of_block = Counter(step.block for step in run.steps)
            for step in run.steps:
                block_of[step.name] = step.block
                start.setdefault(step.name, max(costs.total(step.block), TINY) / of_block[step.block])
            for kind, seconds in took.get((y, run.index), {}).items():
                sums.setdefault(kind, []).append(sum(seconds) if kind == "step" else sum(seconds) / len(seconds))
                parts.setdefault(kind, []).append([step.name for step in run.steps])
    found: dict[str, dict[str, float]] = {}
    for kind in sums:
        for name, seconds in fitted(sums[kind], parts[kind], start).items():
            found.setdefault(name, {})[kind] = seconds
    stepping = {name: mean["step"] for name, mean in found.items() if mean.get("step")}
    of_steps = {name: _cost(mean) for name, mean in found.items()}
    of_blocks: dict[str, list[Cost]] = {}
    for name, cost in of_steps.items():
        of_blocks.setdefault(block_of[name], []).append(cost)
    return Seconds(Fitted(of_steps, {block: _mean(held) for block, held in of_blocks.items()}), stepping)


def _mean(costs: Sequence[Cost]) -> Cost:
    return Cost(*(sum(column) / len(costs) for column in zip(*costs, strict=True)))


def _cost(mean: dict[str, float]) -> Cost:
    """Halves of a backward that was run whole are taken to cost half of it."""
    inputs, weight = mean.get("I", 0.0), mean.get("W", 0.0)
    whole = mean.get("B", inputs + weight)
    return Cost(mean.get("F", 0.0), whole, inputs or whole / 2, weight or whole / 2)
