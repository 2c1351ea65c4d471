"""`replay`: a run that was recorded, decided again by the simulator. Does it pick the tasks that the workers picked?

    from the record     when each worker decided, when tasks were ready for it, which subnets it had let in by then
    from the simulator  what a task waits for, and which task the order takes

A task that the simulator's rules hold back longer than the record says, or that its order ranks otherwise, is out of
place. Times are those of the record and not derived: two tasks of 30 ms that end within a hundredth of one another on
two workers are in an order that no model of durations can know.

    worker    task ─┐ host ┌─ decided: task ─┐  idle          ┌─ decided: task
              ──────┴──────┴─────────────────┴────────────────┴───────────────
                        ready ready              ready  ready     all these are there for the next decision
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappush

from sennit.runtime.forecast import RecipeLoad
from sennit.runtime.recorder import LET_IN
from sennit.runtime.repeated import kind_of
from sennit.runtime.scheduling import in_flight_of, policy_of, setting_of
from sennit.schedule.chains import Chains, Link
from sennit.schedule.order import Order, Task
from sennit.simulate.chain_links import chain_links
from sennit.simulate.engine import Simulation
from sennit.simulate.flight import Arrival, Came
from sennit.simulate.load import Piece
from sennit.trace.events import Counted
from sennit.trace.span import Span

LAST = 1 << 60
"""Number of events that come after all others of the same time."""


@dataclass(frozen=True)
class Moments:
    """What a record says.

    Attributes:
        order: of each worker's tasks.
        decided: of each worker, when it took them.
        ready: when a task was there for its worker.
        made: how long a task took at least until others could have something of it, seconds: half of it, since it
            sends and releases before it ends.
        let_in: of each worker, when each subnet came in.
    """

    order: Sequence[Sequence[Task]]
    decided: Sequence[Sequence[float]]
    ready: Mapping[Task, float]
    made: Mapping[Task, float]
    let_in: Sequence[Sequence[float]]

    @staticmethod
    def of(spans: Iterable[Span], counters: Iterable[Counted], workers: int) -> Moments:
        """From one call of a trace."""
        tasks = sorted((span for span in spans if span.kind in "FBIW"), key=lambda span: span.start)
        order: list[list[Task]] = [[] for _ in range(workers)]
        decided: list[list[float]] = [[] for _ in range(workers)]
        ready: dict[Task, float] = {}
        made: dict[Task, float] = {}
        for span in tasks:
            task = Task(kind_of(span), span.seq_id, span.micro_batch, span.run)
            order[span.worker].append(task)
            decided[span.worker].append(span.start)
            ready[task] = span.ready
            made[task] = (span.end - span.start) / 2
        let_in: list[list[float]] = [[] for _ in range(workers)]
        for counted in counters:
            if counted.counter == LET_IN:
                let_in[counted.worker].append(counted.time)
        return Moments(order, decided, ready, made, let_in)


class Dated:
    """An order that is asked at recorded moments alone.

    Args:
        chains: of this worker, or None if its order asks for none.
    """

    def __init__(self, order: Order, worker: int, replayed: Replayed, chains: Chains | None) -> None:
        self.order, self.worker, self.replayed, self.chains = order, worker, replayed, chains
        self.taken: list[Task] = []
        self.looks = 0
        """How many of the moments have been."""

    def add(self, task: Task) -> None:
        self.let_in()
        self.order.add(task)

    def pop(self) -> Task | None:
        if len(self.taken) >= self.looks:
            return None
        self.let_in()
        if (task := self.order.pop()) is not None:
            self.taken.append(task)
        return task

    def let_in(self) -> None:
        """Tell the chains of subnets as late as the worker told its own."""
        if self.chains is None:
            return
        came, links = self.replayed.moments.let_in[self.worker], self.replayed.links
        while (y := len(self.chains.held)) < len(came) and y < len(links) and came[y] <= self.replayed.now:
            self.chains.admit(y, links[y])


class Replayed(Simulation):
    """A simulation at recorded moments."""

    moments: Moments
    links: list[list[Link]]
    dated: list[Dated]

    def begin(self, moments: Moments) -> None:
        """Workers will look for tasks whenever they did, after all that comes at the same time."""
        self.moments, self.links, self.dated = moments, [], []
        for worker, decided in enumerate(moments.decided):
            for at in decided:
                heappush(self.events, (at, LAST, worker, at, None))

    def look(self, worker: int) -> None:
        self.dated[worker].looks += 1
        super().look(worker)

    def seconds(self, task: Task) -> float:
        return self.moments.made[task]

    def take_in(self, y: int, pieces: Sequence[Piece]) -> None:
        super().take_in(y, pieces)
        self.links.append(chain_links(pieces, lambda group: self.sync.reads(group, y), split=self.split))

    def enter(self, task: Task, came: Came) -> None:
        """The first decision that could see it is the one after the record says that it was there."""
        piece = self.flights[task.seq_id].pieces[task.run]
        decided = self.moments.decided[piece.where(task.micro_batch)]
        next_one = bisect_left(decided, self.moments.ready[task])
        at = decided[next_one] if next_one < len(decided) else self.now
        if at > self.now:
            self.later(at, -1, Arrival(task, came))
        else:
            super().enter(task, came)

    def arrived(self, what: Arrival) -> None:
        super().enter(*what)


def replay(load: RecipeLoad, spans: Iterable[Span], counters: Iterable[Counted]) -> tuple[int, int]:
    """Decide a run again, from its beginning.

    Args:
        spans, counters: of its first call.

    Returns:
        How many tasks are in their place in their worker's order, and how many there are.
    """
    recipe, workers = load.recipe, load.workers
    moments = Moments.of(spans, counters, workers)
    placement = replace(load.placement, in_flight=in_flight_of(recipe, load.placement))
    held, setting = policy_of(recipe, placement), setting_of(recipe, placement)
    orders: list[Order] = []
    played = Replayed(load, orders, recipe.built.sync(workers), placement.in_flight, split=placement.split)
    played.begin(moments)
    setting = replace(setting, awaited=played.awaited, end=lambda: load.steps)
    for worker in range(workers):
        chains = Chains(recipe.micro_batches, placement.workers) if held.chained else None
        played.dated.append(Dated(held.order(worker, replace(setting, chains=chains)), worker, played, chains))
    orders += played.dated
    played.run()
    pairs = [pair for k, one in enumerate(played.dated) for pair in zip(one.taken, moments.order[k], strict=True)]
    return sum(a == b for a, b in pairs), len(pairs)
