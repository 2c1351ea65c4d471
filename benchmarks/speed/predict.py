"""What the simulator says a row takes, from prices of layers and what the host adds; and the critical path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from benchmarks.speed.costs import ALIKE, HostCost, Prices, Shares
from benchmarks.speed.exchange import Exchange, group_sizes
from benchmarks.speed.window import Window

from sennit.errors import UserError
from sennit.program.template import leaves
from sennit.recipe import Placement, Recipe
from sennit.runtime.forecast import RecipeLoad, forecast
from sennit.runtime.pieces import pieces_of
from sennit.runtime.placing import plans_of
from sennit.runtime.scheduling import settled
from sennit.simulate.bounds import bounds
from sennit.simulate.cluster import Cluster, Link
from sennit.simulate.launched import Launches
from sennit.simulate.load import Piece
from sennit.trace.span import Span


@dataclass(frozen=True)
class PricedLoad(RecipeLoad):
    """A recipe's subnets; what a layer takes depends on the shape of the batch.

    Attributes:
        times: prices are multiplied by it.
        exchange: what replicas send each other; None where that takes no time.
    """

    prices: Prices | None = None
    shapes: Mapping[int, str] | None = None
    times: Shares = ALIKE
    exchange: Exchange | None = None

    def subnets(self) -> Iterator[Sequence[Piece]]:
        built, plans, prices, shapes = self.recipe.built, self.plans, self.prices, self.shapes
        assert prices is not None and shapes is not None
        frozen = built.always[0] if self.recipe.sharing.kind == "frozen" else frozenset[str]()
        for y, runs in enumerate(self.runs()):
            spread = [plans.spread(y, run.steps[0].block, self.micro_batches) for run in runs]
            pieces = pieces_of(runs, spread, built.groups, frozen, prices.at(shapes[y], self.times))
            steps = [self.times.step * prices.step(run.steps) for run in runs]
            replicas = [len(set(workers)) for workers in spread]
            yield [
                replace(  # groups are dealt out to replicas
                    piece, step=step / n, reach=self.reach(piece.groups, n), layers=len(run.steps)
                )
                for piece, run, step, n in zip(pieces, runs, steps, replicas, strict=True)
            ]

    def reach(self, groups: Sequence[str], replicas: int) -> float:
        """Seconds until all replicas of a run have what has been stepped."""
        if self.exchange is None or replicas == 1:
            return 0.0
        return self.exchange.reach([self.sizes[group] for group in groups if group in self.sizes], replicas)

    @cached_property
    def sizes(self) -> dict[str, int]:
        return group_sizes(self.recipe)


def shapes_of(recipe: Recipe, steps: int) -> dict[int, str]:
    """The shape of each subnet's batch, as a text."""
    return {y: str([tuple(t.shape) for t in leaves(recipe.built.batches[y])]) for y in range(steps)}


def most_common(shapes: Mapping[int, str]) -> str:
    """The shape of most batches."""
    return Counter(shapes.values()).most_common(1)[0][0]


def load_of(
    recipe: Recipe, placement: Placement, prices: Prices, shapes: Mapping[int, str], steps: int, times: Shares = ALIKE,
    exchange: Exchange | None = None,
) -> PricedLoad:  # fmt: skip
    """A placement of a recipe, priced."""
    held, mean = settled(recipe, placement), prices.at(most_common(shapes))
    plans = plans_of(recipe.built, held, waits=mean)
    return PricedLoad(recipe, held, plans, mean, steps, prices=prices, shapes=shapes, times=times, exchange=exchange)


def work(load: PricedLoad, subnets: range) -> float:
    """Mean seconds of the tasks and steps of some subnets."""
    m, seconds = load.micro_batches, 0.0
    for y, pieces in enumerate(load.subnets()):
        if y in subnets:
            seconds += sum(m * (piece.cost.forward + piece.cost.whole) + piece.step for piece in pieces)
    return seconds / len(subnets)


def launched(load: PricedLoad) -> tuple[float, float]:
    """Layers that the forwards of a subnet launch, all micro-batches together, and groups that it steps; means."""
    held = [[(piece.layers, len(piece.groups)) for piece in pieces] for pieces in load.subnets()]
    layers, groups = (sum(pair[k] for pairs in held for pair in pairs) / len(held) for k in (0, 1))
    return load.micro_batches * layers, groups


def predicted(
    load: PricedLoad, window: Window, host: HostCost, message_s: float, launches: Launches | None = None
) -> float | str:
    """Milliseconds per subnet in the timed window, or why there is no such placement.

    Args:
        host: what it adds between tasks, if nothing is known of
        launches: what it takes for tasks.
    """
    ends: dict[int, float] = {}

    def watch(span: Span) -> None:
        if span.kind == "F":
            ends[span.seq_id] = max(ends.get(span.seq_id, 0.0), span.end)

    tasks = [2 * load.micro_batches * len(runs) for runs in load.runs()]
    per_task = host.per_task(sum(tasks) / len(tasks), load.workers)
    cluster = Cluster(links=(Link(latency=message_s),), host_s=0.0 if launches else per_task)
    try:
        forecast(load, cluster, watch, launches=launches)
    except UserError as error:
        return str(error).splitlines()[0]
    return window.rate([ends[y] for y in range(window.steps)])[0]


def critical_path(load: PricedLoad) -> float:
    """Milliseconds per subnet of the longest chain through the stream, each layer on a device of its own."""
    sync = load.recipe.built.sync(load.workers)
    return 1e3 * bounds(load, sync).dependencies / load.steps
