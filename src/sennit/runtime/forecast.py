"""What a run of a recipe would take: its own stream, cut by its own plan, simulated under its own orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sennit.plan.plan import Plans
from sennit.profile.costs import Costs
from sennit.program.cut import Run, cut
from sennit.recipe import Placement, Recipe
from sennit.runtime.pieces import pieces_of
from sennit.runtime.repeated import Recorded, Repeated
from sennit.runtime.scheduling import in_flight_of, policy_of, setting_of
from sennit.runtime.sizes import Sizes
from sennit.runtime.subnet import parts_of
from sennit.schedule.chains import Chains
from sennit.schedule.order import Order
from sennit.simulate.cluster import Cluster
from sennit.simulate.engine import Outcome, Simulation, Watch
from sennit.simulate.launched import Launched, Launches
from sennit.simulate.load import Piece


@dataclass(frozen=True)
class RecipeLoad:
    """The subnets of a recipe, run by run.

    Attributes:
        placement: settled (`runtime.scheduling`).
        steps: how many subnets.
        stepping: of steps of programs, seconds of the optimizer's (`Piece.step`).
        run_sizes: bytes that runs send and keep; without it, none.
    """

    recipe: Recipe
    placement: Placement
    plans: Plans
    waits: Costs
    steps: int
    stepping: Mapping[str, float] = field(default_factory=dict[str, float])
    run_sizes: Sizes | None = None

    @property
    def workers(self) -> int:
        return self.placement.workers

    @property
    def micro_batches(self) -> int:
        return self.recipe.micro_batches

    def runs(self, start: int = 0) -> Iterator[Sequence[Run]]:
        """The runs of each subnet from `start` on; earlier ones are drawn and not cut."""
        built, plans = self.recipe.built, self.plans
        feed = built.feed()
        per_layer = self.placement.release == "layer"
        for y in range(self.steps):
            arch = feed.draw()
            if y >= start:
                program = built.looked_at(arch)  # nothing is trained
                plans.tell(y, program.places)
                parts = parts_of(program, built.groups, lambda b, y=y: plans.stretch(y, 0, b), per_layer=per_layer)
                yield cut(program, parts)

    def subnets(self) -> Iterator[Sequence[Piece]]:
        built, plans = self.recipe.built, self.plans
        frozen = built.always[0] if self.recipe.sharing.kind == "frozen" else frozenset[str]()
        for y, runs in enumerate(self.runs()):
            spread = [plans.spread(y, run.steps[0].block, self.micro_batches) for run in runs]
            pieces = pieces_of(runs, spread, built.groups, frozen, self.waits)
            if self.stepping:
                pieces = [replace(p, step=self.step(run)) for p, run in zip(pieces, runs, strict=True)]
            if self.run_sizes is not None:
                pieces = [self.run_sizes.given(p, run) for p, run in zip(pieces, runs, strict=True)]
            yield pieces

    def step(self, run: Run) -> float:
        """Seconds that the groups of a run step."""
        return sum(self.stepping.get(step.name, 0.0) for step in run.steps)


def forecast(
    load: RecipeLoad, cluster: Cluster | None = None, watch: Watch | None = None,
    recorded: Recorded | None = None, launches: Launches | None = None,
) -> Outcome:  # fmt: skip
    """Simulate a run on the workers' own order objects.

    Args:
        recorded: what happened in a run like this; without it, the load's costs.
        launches: what hosts take to launch; None: nothing.
    """
    recipe, in_flight = load.recipe, in_flight_of(load.recipe, load.placement)
    placement = replace(load.placement, in_flight=in_flight)
    orders: list[Order] = []
    held = policy_of(recipe, placement)
    chains = Chains(recipe.micro_batches, placement.workers) if held.chained else None
    kind = Repeated if recorded is not None else Launched if launches is not None else Simulation
    simulation = kind(
        load, orders, recipe.built.sync(placement.workers), in_flight, split=placement.split,
        apart=placement.device == "cuda" and recipe.clip != "none" and recipe.sync_rule.kind != "asp",
        cluster=cluster, chains=chains, watch=watch,
    )  # fmt: skip
    if isinstance(simulation, Repeated) and recorded is not None:
        simulation.recorded, simulation.stepped = recorded, set()
    if isinstance(simulation, Launched) and launches is not None:
        simulation.begin(launches)
    setting = setting_of(recipe, placement)
    setting = replace(setting, awaited=simulation.awaited, chains=chains, end=lambda: load.steps)
    orders += [held.order(worker, setting) for worker in range(placement.workers)]
    return simulation.run()
