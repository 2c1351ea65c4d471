"""One partition for all subnets, one for each, and one for each that moves little: simulated, with bytes moved.

    sennit profile recipes/nlp.c3-small.toml --out profile.json
    python benchmarks/partitions.py recipes/nlp.c3-small.toml profile.json [--workers 2,4,8]
        [--shared delayed:8]

The recipe's own stream, each layer with the seconds of its kind, under `csp`. `moved` are parameters and state, per
subnet, of layers that the worker which runs them did not run when they ran last: what a device must fetch from the
host's store even if it never gave up a layer. One JSON object a line.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sennit.plan.balance import balanced_cuts
from sennit.plan.per_subnet import PerSubnet
from sennit.plan.plan import CutsPlan, PlanEpoch, Plans
from sennit.profile.costs import mean_costs
from sennit.profile.profile import Profile, read_profile
from sennit.profile.quick import block_order
from sennit.recipe import Placement, Recipe, read_recipe
from sennit.runtime.forecast import RecipeLoad, forecast
from sennit.runtime.scheduling import settled

SLACKS = (0.0, 0.02, 0.05, 0.1, 0.2)


def plan_of(name: str, recipe: Recipe, profile: Profile, workers: int) -> CutsPlan:
    built = recipe.built
    blocks = block_order(built)

    def seconds(steps: Sequence[str]) -> float:
        cost = profile.of(steps)
        return cost.forward + cost.whole

    def size(steps: Sequence[str]) -> float:
        held = [kind for step in steps if (kind := profile.kind(step)) is not None]
        return float(sum(kind.parameter_bytes + kind.state_bytes for kind in held))

    kind, _, slack = name.partition(" ")
    if kind == "static":
        return CutsPlan(blocks, [balanced_cuts(mean_costs(built, profile), workers)], workers)
    if kind == "balanced":
        return PerSubnet(blocks, workers, 1, seconds)
    return PerSubnet(blocks, workers, 1, seconds, size, float(slack))


def moved_bytes(recipe: Recipe, profile: Profile, plans: Plans, subnets: int) -> float:
    """Per subnet, the first time of each layer left out."""
    last: dict[str, int] = {}
    feed, total = recipe.built.feed(), 0
    for y in range(subnets):
        program = recipe.built.program(feed.draw())
        plans.tell(y, program.places)
        for step in program.steps:
            kind, worker = profile.kind(step.name), plans.worker(y, 0, step.block)
            if kind is not None and last.setdefault(step.name, worker) != worker:
                total += kind.parameter_bytes + kind.state_bytes
                last[step.name] = worker
    return total / subnets


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("recipe")
    parser.add_argument("profile", type=Path)
    parser.add_argument("--workers", default="2,4,8")
    parser.add_argument("--subnets", type=int, default=200)
    parser.add_argument("--shared", help="in place of the recipe's")
    given = parser.parse_args()
    recipe, profile = read_recipe(given.recipe), read_profile(given.profile)
    recipe = replace(recipe, shared=given.shared or recipe.shared)
    names = ["static", "balanced", *(f"sticky {slack}" for slack in SLACKS)]
    for workers in (int(n) for n in given.workers.split(",")):
        placement = settled(recipe, Placement(workers=workers))
        for name in names:
            plans = [Plans([PlanEpoch(0, plan_of(name, recipe, profile, workers))]) for _ in range(2)]
            outcome = forecast(RecipeLoad(recipe, placement, plans[0], profile, given.subnets))
            row = {
                "recipe": given.recipe, "shared": recipe.shared, "workers": workers, "partition": name,
                "subnets": given.subnets, "ms_per_subnet": 1e3 * outcome.makespan / given.subnets,
                "bubble": outcome.bubble, "moved": moved_bytes(recipe, profile, plans[1], given.subnets),
            }  # fmt: skip
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
