"""`simulate`: discrete events. Tasks start when a worker is free and its order picks them; nothing else decides.

    event: a task ends ──▶ values and gradients leave, versions are released ──▶ tasks become ready
                       ──▶ its worker, and every worker that got something, asks its order for the next task

A task becomes ready by the rules of the workers (`sennit.runtime.waiting`): a forward has its value and every
group in the version that `Sync` names; a backward has the gradient; a weight gradient has its input gradient.
State is kept for subnets in flight only.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sennit.schedule.order import Order, Task
from sennit.simulate.load import Load, Piece
from sennit.supernet.sync import Sync
from sennit.trace.span import Cause, Span


@dataclass(slots=True)
class _Flight:
    """A subnet in flight.

    Attributes:
        closed: per run, how many of its groups are not in the awaited version yet.
        held: per run, micro-batches whose value has come while groups are closed.
        left: per run, gradients that have not been computed.
        open_runs: runs that still have gradients to compute.
    """

    pieces: Sequence[Piece]
    closed: list[int]
    held: list[list[int]]
    left: list[int]
    open_runs: int


@dataclass(slots=True)
class Outcome:
    """What a simulation found.

    Attributes:
        makespan: seconds from the first task's start to the last one's end.
        busy: seconds that each worker computed.
        tasks: how many tasks ran.
        subnets: how many subnets.
    """

    makespan: float
    busy: list[float]
    tasks: int
    subnets: int

    @property
    def bubble(self) -> float:
        """1 - device time of all tasks / (workers x makespan)."""
        return 1.0 - sum(self.busy) / (len(self.busy) * self.makespan)


Watch = Callable[[Span], None]
"""Told every task, in order of ends, with what it waited for."""


class Simulation:
    """One run of a load under orders.

    Args:
        orders: one per worker.
        sync: which version is read.
        in_flight: most unfinished subnets.
        split: backward as I and W instead of B.
        watch: told every task.
    """

    def __init__(
        self, load: Load, orders: Sequence[Order], sync: Sync, in_flight: int, *, split: bool = False,
        watch: Watch | None = None,
    ) -> None:  # fmt: skip
        self.m, self.orders, self.sync, self.in_flight, self.split = load.micro_batches, orders, sync, in_flight, split
        self.stream: Iterator[Sequence[Piece]] = load.subnets()
        self.watch = watch
        self.now = 0.0
        self.ended_task: Task | None = None
        """What has just ended, the maker of whatever comes of it."""
        self.came: dict[Task, tuple[float, float, Cause, str, str]] = {}
        """Of ready tasks, if somebody watches: `ready`, `left`, `cause`, `of` and `by` of their spans."""
        self.flights: dict[int, _Flight] = {}
        self.version: dict[str, int] = {}
        """Newest version of each group; older ones that `delayed:K` still reads are kept."""
        self.writers: dict[str, dict[int, bool]] = {}
        """Per group, subnets in flight that write it, in order, and whether their gradient is there."""
        self.readers: dict[tuple[str, int], list[tuple[int, int]]] = {}
        """(group, version) to the (subnet, run) that wait for it."""
        self.next_id = 0
        self.ended = False
        self.woken: set[int] = set()

    def run(self) -> Outcome:
        """Simulate to the end of the stream."""
        workers = len(self.orders)
        events: list[tuple[float, int, int, float, Task]] = []
        idle = [True] * workers
        busy = [0.0] * workers
        now, count = 0.0, 0
        self.admit()
        while True:
            for worker in sorted(self.woken):
                if not idle[worker]:
                    continue
                task = self.orders[worker].pop()
                if task is None:
                    continue
                idle[worker] = False
                kind, y, _, r = task
                cost = self.flights[y].pieces[r].cost
                seconds = cost[_COST[kind]]
                busy[worker] += seconds
                count += 1
                heapq.heappush(events, (now + seconds, count, worker, now, task))
            self.woken.clear()
            if not events:
                break
            now, _, worker, began, task = heapq.heappop(events)
            idle[worker] = True
            self.woken.add(worker)
            self.now, self.ended_task = now, task
            if self.watch is not None:
                self.watch(Span(worker, *task, began, now, *self.came.pop(task)))
            self.done(task)
        assert not self.flights, f"no task is ready, and subnets {sorted(self.flights)[:5]} are not done"
        return Outcome(now, busy, count, self.next_id)

    # -- what a finished task brings

    def done(self, task: Task) -> None:
        kind, y, j, r = task
        flight = self.flights[y]
        if kind == "F":
            if r + 1 < len(flight.pieces):
                self.arrive(flight, y, j, r + 1, "value")
            else:
                self.ready(flight, Task("I" if self.split else "B", y, j, r), "gradient", "loss")
            return
        if kind != "W":
            if r:
                self.ready(flight, Task(kind, y, j, r - 1), "gradient")
            if kind == "I":
                self.ready(flight, Task("W", y, j, r), "weight")
                return
        flight.left[r] -= 1
        if not flight.left[r]:
            self.release(flight, y, r)

    def ready(self, flight: _Flight, task: Task, cause: Cause, of: str = "") -> None:
        worker = flight.pieces[task.run].worker
        if self.watch is not None:
            self.came[task] = (self.now, self.now, cause, of, str(self.ended_task or ""))
        self.orders[worker].add(task)
        self.woken.add(worker)

    def arrive(self, flight: _Flight, y: int, j: int, r: int, cause: Cause) -> None:
        """The value that a forward reads is there."""
        if flight.closed[r]:
            flight.held[r].append(j)
        else:
            self.ready(flight, Task("F", y, j, r), cause)

    def release(self, flight: _Flight, y: int, r: int) -> None:
        """All gradients of a run are there: its groups step."""
        for group in flight.pieces[r].groups:
            writers = self.writers[group]
            writers[y] = True
            while writers and (first := next(iter(writers.items())))[1]:
                del writers[first[0]]
                self.publish(group, first[0])
        flight.open_runs -= 1
        if not flight.open_runs:
            del self.flights[y]
            self.sync.forget(y)
            self.admit()

    def publish(self, group: str, version: int) -> None:
        """A group has a new version: runs that waited for it alone are open."""
        self.version[group] = version
        for z, run in self.readers.pop((group, version), ()):
            waiting = self.flights[z]
            waiting.closed[run] -= 1
            if not waiting.closed[run]:
                for j in waiting.held[run]:
                    self.ready(waiting, Task("F", z, j, run), "version", group)
                waiting.held[run].clear()

    def admit(self) -> None:
        """Let subnets in."""
        while len(self.flights) < self.in_flight and not self.ended:
            pieces = next(self.stream, None)
            if pieces is None:
                self.ended = True
                return
            y = self.next_id
            self.next_id += 1
            self.sync.observe(y, [group for piece in pieces for group in piece.groups])
            closed = [0] * len(pieces)
            for r, piece in enumerate(pieces):
                for group in piece.groups:
                    wanted = self.sync.reads(group, y)
                    self.writers.setdefault(group, {})[y] = False
                    if self.version.get(group, -1) < wanted:
                        closed[r] += 1
                        self.readers.setdefault((group, wanted), []).append((y, r))
            n = len(pieces)
            flight = self.flights[y] = _Flight(pieces, closed, [[] for _ in range(n)], [self.m] * n, n)
            for j in range(self.m):
                self.arrive(flight, y, j, 0, "admitted" if self.ended_task else "start")

    def awaited(self, y: int, r: int) -> bool:
        """Whether a subnet in flight waits for the groups of a run."""
        return any((group, y) in self.readers for group in self.flights[y].pieces[r].groups)


_COST = {"F": 0, "B": 1, "I": 2, "W": 3}
