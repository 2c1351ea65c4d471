"""What a run of a recipe would take: its own stream, cut by its own plan, simulated under its own orders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from sennit.plan.plan import Plans
from sennit.profile.waits import Waits
from sennit.program.cut import Run, cut
from sennit.recipe import Placement, Recipe
from sennit.runtime.pieces import pieces_of
from sennit.runtime.scheduling import in_flight_of, policy_of, setting_of
from sennit.runtime.subnet import parts_of
from sennit.schedule.action import Kind
from sennit.schedule.chains import Chains
from sennit.schedule.order import Order, Task
from sennit.simulate.cluster import Cluster
from sennit.simulate.engine import Outcome, Simulation, Watch
from sennit.simulate.flight import Arrival, Came, Left
from sennit.simulate.load import Piece
from sennit.trace.events import name_of
from sennit.trace.span import Span


@dataclass(frozen=True)
class RecipeLoad:
    """The subnets of a recipe, run by run.

    Attributes:
        placement: settled (`runtime.scheduling`).
        steps: how many subnets.
        stepping: of blocks, seconds of a step (`Piece.step`).
    """

    recipe: Recipe
    placement: Placement
    plans: Plans
    waits: Waits
    steps: int
    stepping: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def workers(self) -> int:
        return self.placement.workers

    @property
    def micro_batches(self) -> int:
        return self.recipe.micro_batches

    def runs(self) -> Iterator[Sequence[Run]]:
        """Each subnet's runs."""
        built, plans = self.recipe.built, self.plans
        feed = built.feed()
        per_layer = self.placement.release == "layer"
        for y in range(self.steps):
            program = built.program(feed.draw())
            parts = parts_of(program, built.groups, lambda b, y=y: plans.stretch(y, 0, b), per_layer=per_layer)
            yield cut(program, parts)

    def subnets(self) -> Iterator[Sequence[Piece]]:
        built, plans = self.recipe.built, self.plans
        frozen = built.always[0] if self.recipe.sharing.kind == "frozen" else frozenset[str]()
        for y, runs in enumerate(self.runs()):
            spread = [plans.spread(y, run.steps[0].block, self.micro_batches) for run in runs]
            pieces = pieces_of(runs, spread, built.groups, frozen, self.waits)
            yield (
                [replace(p, step=self.step(run)) for p, run in zip(pieces, runs, strict=True)]
                if self.stepping
                else pieces
            )

    def step(self, run: Run) -> float:
        """Seconds that the groups of a run step."""
        return sum(self.stepping.get(block, 0.0) for block in {step.block for step in run.steps})


@dataclass(frozen=True)
class Recorded:
    """What a trace says of each task.

    Attributes:
        seconds: from when its worker could begin it to its end.
        transit: from when the last thing that it waited for was made until it was there.
        sent, stepped: how long before its end values or gradients had left, and the last of its versions was there. A
            backward sends its gradient before it steps.
    """

    seconds: Mapping[Task, float]
    transit: Mapping[Task, float]
    sent: Mapping[str, float]
    stepped: Mapping[str, float]

    @staticmethod
    def of(spans: Iterable[Span]) -> Recorded:
        """From the spans of one call; those of optimizer steps outside of tasks are left out."""
        free: dict[int, float] = {}
        seconds: dict[Task, float] = {}
        transit: dict[Task, float] = {}
        ends: dict[str, float] = {}
        sent: dict[str, float] = {}
        stepped: dict[str, float] = {}
        tasks = sorted((span for span in spans if span.kind in "FBIW"), key=lambda span: span.start)
        for span in tasks:
            task = Task(kind_of(span), span.seq_id, span.micro_batch, span.run)
            could = min(span.start, max(span.ready, free.get(span.worker, 0.0)))
            seconds[task] = span.end - could  # what the host does in between belongs to the task
            transit[task] = max(0.0, span.ready - span.left)
            free[span.worker] = ends[name_of(span)] = span.end
            if span.cause in ("value", "gradient"):
                sent[span.by] = min(sent.get(span.by, span.left), span.left)
            elif span.cause == "version":
                stepped[span.by] = max(stepped.get(span.by, span.left), span.left)
        return Recorded(seconds, transit, _before(sent, ends), _before(stepped, ends))


def _before(moments: Mapping[str, float], ends: Mapping[str, float]) -> dict[str, float]:
    """How long before the end of its maker something was there, where it was."""
    return {by: ends[by] - at for by, at in moments.items() if at < ends.get(by, at)}


def kind_of(span: Span) -> Kind:
    """The kind of a span that is a task."""
    return cast("Kind", span.kind)


class Stepped(Arrival):
    """The versions that a task makes are there before its end."""


class Repeated(Simulation):
    """A simulation in which tasks take as long as recorded, and what they wait for comes as late. The orders decide."""

    recorded: Recorded
    stepped: set[Task]
    """Tasks under way whose versions are there."""

    def seconds(self, task: Task) -> float:
        found, name = self.recorded, str(task)
        seconds = found.seconds[task]
        for before, kind in ((found.sent.get(name), Left), (found.stepped.get(name), Stepped)):
            if before is not None:
                self.later(self.now + max(0.0, seconds - before), -1, kind(task, Came(self.now, "start", "", None)))
        return seconds

    def arrived(self, what: Arrival) -> None:
        if not isinstance(what, Stepped):
            super().arrived(what)
            return
        task = what.task
        self.leaves(task)
        self.stepped.add(task)
        super().complete(task, self.flights[task.seq_id].pieces[task.run].where(task.micro_batch))

    def leaves(self, task: Task) -> None:
        if task not in self.left:
            super().leaves(task)

    def complete(self, task: Task, worker: int) -> None:
        if task in self.stepped:
            self.stepped.remove(task)
        else:
            super().complete(task, worker)

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
        simulation.recorded, simulation.stepped = recorded, set()
    setting = setting_of(recipe, placement)
    setting = replace(setting, awaited=simulation.awaited, chains=chains, end=lambda: load.steps)
    orders += [held.order(worker, setting) for worker in range(placement.workers)]
    return simulation.run()
