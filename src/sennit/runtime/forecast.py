"""What a run of a recipe would take: its own stream, cut by its own plan, simulated under its own orders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from sennit.plan.plan import Plans
from sennit.profile.waits import Waits
from sennit.program.cut import cut
from sennit.recipe import Placement, Recipe
from sennit.runtime.pieces import pieces_of
from sennit.runtime.scheduling import in_flight_of, policy_of, setting_of
from sennit.runtime.subnet import parts_of
from sennit.schedule.action import Kind
from sennit.schedule.chains import Chains
from sennit.schedule.order import Order, Task
from sennit.simulate.cluster import Cluster
from sennit.simulate.engine import Outcome, Simulation, Watch
from sennit.simulate.flight import Arrival, Came
from sennit.simulate.load import Piece
from sennit.trace.span import Span


@dataclass(frozen=True)
class RecipeLoad:
    """The subnets of a recipe, run by run.

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
            runs = cut(program, parts)
            spread = [plans.spread(y, run.steps[0].block, self.micro_batches) for run in runs]
            yield pieces_of(runs, spread, built.groups, frozen, self.waits)


@dataclass(frozen=True)
class Recorded:
    """What a trace says of each task.

    Attributes:
        seconds: from when its worker could begin it to its end.
        transit: from when the last thing that it waited for was made until it was there.
    """

    seconds: Mapping[Task, float]
    transit: Mapping[Task, float]

    @staticmethod
    def of(spans: Iterable[Span]) -> Recorded:
        """From the spans of one call; those of optimizer steps outside of tasks are left out."""
        free: dict[int, float] = {}
        seconds: dict[Task, float] = {}
        transit: dict[Task, float] = {}
        for span in sorted(spans, key=lambda span: span.start):
            if span.kind not in ("F", "B", "I", "W"):
                continue
            task = Task(kind_of(span), span.seq_id, span.micro_batch, span.run)
            could = min(span.start, max(span.ready, free.get(span.worker, 0.0)))
            seconds[task] = span.end - could  # what the host does in between belongs to the task
            transit[task] = max(0.0, span.ready - span.left)
            free[span.worker] = span.end
        return Recorded(seconds, transit)


def kind_of(span: Span) -> Kind:
    """The kind of a span that is a task."""
    return cast("Kind", span.kind)


class Repeated(Simulation):
    """A simulation in which tasks take as long as recorded, and what they wait for comes as late. The orders decide."""

    recorded: Recorded

    def seconds(self, task: Task) -> float:
        return self.recorded.seconds[task]

    def enter(self, task: Task, came: Came) -> None:
        late = self.recorded.transit[task]
        if not late or came.left < self.now:  # it has been on its way already
            super().enter(task, came)
        else:
            self.later(self.now + late, -1, Arrival(task, came))


def forecast(
    load: RecipeLoad, cluster: Cluster | None = None, watch: Watch | None = None,
    recorded: Recorded | None = None,
) -> Outcome:  # fmt: skip
    """Simulate a run on the workers' own order objects.

    Args:
        recorded: what happened in a run like this; without it, the load's costs.
    """
    recipe, in_flight = load.recipe, in_flight_of(load.recipe, load.placement)
    placement = replace(load.placement, in_flight=in_flight)
    orders: list[Order] = []
    held = policy_of(recipe, placement)
    chains = Chains(recipe.micro_batches) if held.chained else None
    kind = Simulation if recorded is None else Repeated
    simulation = kind(
        load, orders, recipe.built.sync(placement.workers), in_flight, split=placement.split, cluster=cluster,
        chains=chains, watch=watch,
    )  # fmt: skip
    if isinstance(simulation, Repeated) and recorded is not None:
        simulation.recorded = recorded
    setting = setting_of(recipe, placement)
    setting = replace(setting, awaited=simulation.awaited, chains=chains, end=lambda: load.steps)
    orders += [held.order(worker, setting) for worker in range(placement.workers)]
    return simulation.run()
