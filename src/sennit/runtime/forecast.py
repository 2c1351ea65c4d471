"""What a run of a recipe would take: its own stream, cut by its own plan, simulated under its own orders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sennit.plan.plan import Plans
from sennit.profile.waits import Waits
from sennit.program.cut import cut
from sennit.recipe import Placement, Recipe
from sennit.runtime.pieces import pieces_of
from sennit.runtime.scheduling import in_flight_of, policy_of, setting_of
from sennit.runtime.subnet import parts_of
from sennit.schedule.chains import Chains
from sennit.schedule.order import Order, Task
from sennit.simulate.cluster import Cluster
from sennit.simulate.engine import Outcome, Simulation, Watch
from sennit.simulate.load import Piece


@dataclass(frozen=True)
class RecipeLoad:
    """The subnets of a recipe as chains of runs. A value that skips runs is taken to go along with the others.

    Attributes:
        placement: settled (`runtime.scheduling`).
        steps: how many subnets.
    """

    recipe: Recipe
    placement: Placement
    plans: Plans
    waits: Waits
    steps: int

    @property
    def workers(self) -> int:
        return self.placement.workers

    @property
    def micro_batches(self) -> int:
        return self.recipe.micro_batches

    def subnets(self) -> Iterator[Sequence[Piece]]:
        built, plans = self.recipe.built, self.plans
        frozen = built.always[0] if self.recipe.sharing.kind == "frozen" else frozenset[str]()
        feed = built.feed()
        for y in range(self.steps):
            program = built.program(feed.draw())
            per_layer = self.placement.release == "layer"
            parts = parts_of(program, built.groups, lambda b, y=y: plans.stretch(y, 0, b), per_layer=per_layer)
            runs = cut(program, [plans.worker(y, 0, step.block) for step in program.steps], parts)
            yield pieces_of(runs, built.groups, frozen, self.waits)


class Repeated(Simulation):
    """A simulation in which every task takes as long as it has taken once."""

    durations: Callable[[Task], float]

    def later(self, at: float, worker: int, what: Any) -> None:
        super().later(self.now + self.durations(what) if isinstance(what, Task) else at, worker, what)


def forecast(
    load: RecipeLoad, cluster: Cluster | None = None, watch: Watch | None = None,
    durations: Callable[[Task], float] | None = None,
) -> Outcome:  # fmt: skip
    """Simulate a run on the workers' own order objects.

    Args:
        durations: seconds of each task, from a trace; the load's if left out. (`busy` is then still the load's.)
    """
    recipe, in_flight = load.recipe, in_flight_of(load.recipe, load.placement)
    placement = replace(load.placement, in_flight=in_flight)
    orders: list[Order] = []
    held = policy_of(recipe, placement)
    chains = Chains(recipe.micro_batches) if held.chained else None
    kind = Simulation if durations is None else Repeated
    simulation = kind(
        load, orders, recipe.built.sync(placement.workers), in_flight, split=placement.split, cluster=cluster,
        chains=chains, watch=watch,
    )  # fmt: skip
    if isinstance(simulation, Repeated) and durations is not None:
        simulation.durations = durations
    setting = setting_of(recipe, placement)
    setting = replace(setting, awaited=simulation.awaited, chains=chains, end=lambda: load.steps)
    orders += [held.order(worker, setting) for worker in range(placement.workers)]
    return simulation.run()
