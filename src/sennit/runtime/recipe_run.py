"""`RecipeRun`: what a recipe would do on some workers, simulated before it runs there.

profile ──▶ seconds of each step ──▶ the recipe's first subnets, cut by the plan, under the workers' own orders
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sennit.errors import UserError
from sennit.plan.plan import CutsPlan
from sennit.profile.costs import profile_for, read_costs, rows_of
from sennit.profile.profile import is_profile
from sennit.recipe import Placement, Recipe
from sennit.runtime.forecast import RecipeLoad, forecast
from sennit.runtime.levers import Seconds, levers, load_of
from sennit.runtime.scheduling import in_flight_of, name_of_policy, settled
from sennit.runtime.sizes import Sizes
from sennit.runtime.usercode import blaming
from sennit.simulate.bounds import bounds
from sennit.simulate.cluster import Cluster
from sennit.simulate.figures import figures
from sennit.simulate.outcome import Outcome, Watch


@dataclass(frozen=True)
class RecipeRun:
    """A run.

    Attributes:
        placement: as it was asked for.
        seconds: what tasks take.
        subnets: the most that are simulated.
    """

    recipe: Recipe
    placement: Placement
    seconds: Seconds
    subnets: int
    cluster: Cluster | None = None

    @cached_property
    def held(self) -> Placement:
        return settled(self.recipe, self.placement)

    @cached_property
    def load(self) -> RecipeLoad:
        """The first subnets of the stream: whole bulks."""
        bulk, steps = self.recipe.sync_rule.bulk(self.held.workers), min(self.subnets, self.recipe.steps)
        if self.recipe.built.sampler().learning:
            raise UserError(
                f"sampler = {self.recipe.sampler!r} may draw by what it learns, so which subnets come is known in a "
                'run alone; simulate with sampler = "uniform"'
            )
        if steps < bulk:
            raise UserError(
                f"sync = {self.recipe.sync!r} steps once per {bulk} subnets; simulate at least as many, got {steps}"
            )
        load = load_of(self.recipe, self.held, self.seconds, steps // bulk * bulk)
        return replace(load, stepping=self.stepping(load, bulk))

    def stepping(self, load: RecipeLoad, bulk: int) -> dict[str, float]:
        """Seconds of the optimizer per subnet: a bulk steps each layer that its subnets use once, frozen ones never."""
        frozen = self.recipe.built.always[0] if self.recipe.sharing.kind == "frozen" else frozenset[str]()
        groups, uses, bulks = self.recipe.built.groups, Counter[str](), dict[str, set[int]]()
        still = set[str]()
        for y, runs in enumerate(load.runs() if bulk > 1 or frozen else ()):
            for step in (step for run in runs for step in run.steps):
                uses[step.name] += 1
                bulks.setdefault(step.name, set()).add(y // bulk)
                if frozen and (read := set(groups.of_step(step)[0])) and read <= frozen:
                    still.add(step.name)
        often = {name: 0.0 if name in still else len(bulks[name]) / uses[name] for name in uses}
        return {name: seconds * often.get(name, 1.0) for name, seconds in load.stepping.items()}

    def simulate(self, watch: Watch | None = None) -> Outcome:
        """On the workers' own order objects."""
        return forecast(self.load, self.cluster, watch=watch)

    def tried_levers(self) -> Iterator[dict[str, Any]]:
        """What each change brings, and whether it changes the recipe. What cannot be run is left out."""
        for lever in levers(self.recipe, self.placement, self.seconds):
            run = replace(self, recipe=lever.recipe, placement=lever.placement, seconds=lever.seconds)
            try:
                with blaming(UserError, f"with {lever.change}"):
                    outcome = run.simulate()
            except UserError:
                continue
            another = lever.recipe is not self.recipe
            seconds = outcome.makespan / outcome.subnets
            found = {"change": lever.change, "bubble": outcome.bubble, "recipe": another, "subnet_s": seconds}
            yield {**found, "provided": lever.provided} if lever.provided else found

    def report(self, *, with_levers: bool = True, watch: Watch | None = None) -> dict[str, Any]:
        """What `sennit simulate --recipe --json` gives; keys as with `--space`, and `subnet_s`, seconds per subnet."""
        outcome, held = self.simulate(watch), self.held
        if not outcome.makespan:
            raise UserError("no task takes any time, so nothing can be said; give --waits what blocks or layers take")
        in_flight, plan = in_flight_of(self.recipe, held), self.load.plans.at(0)
        sync = self.recipe.built.sync(held.workers)
        bound = bounds(self.load, sync, in_flight, split=held.split, cluster=self.cluster)
        found = sorted(self.tried_levers(), key=lambda lever: lever["subnet_s"]) if with_levers else []
        return {
            "schedule": name_of_policy(self.recipe, held), "sync": self.recipe.sync, "release": held.release,
            "chunks": plan.chunks if isinstance(plan, CutsPlan) else held.chunks, "replicas": held.replicas,
            "split": held.split, "micro_batches": self.recipe.micro_batches,
            **figures(outcome, bound),
            "in_flight": in_flight, "subnet_s": outcome.makespan / outcome.subnets, "levers": found,
        }  # fmt: skip


def seconds_of(path: Path, recipe: Recipe) -> tuple[str, Seconds]:
    """The device that a file of waits, or a profile, is of, and what it says; scaled to the recipe's micro-batches.

    Raises:
        UserError: neither, or one of another space.
    """
    if not is_profile(path):
        return "cpu", Seconds(read_costs(path, recipe.built))
    profile = profile_for(path, recipe.built)
    optimizer = {step: profile.kinds[number].step for step, number in profile.steps.items()}
    by = rows_of(recipe.built) / profile.micro_batch
    seconds = Seconds(profile, optimizer, Sizes(profile))
    return profile.device, seconds if by == 1.0 else seconds.scaled(by)
