"""`simulate`: discrete events. Tasks start when a worker is free and its order picks them; nothing else decides.

    event: a task ends ──▶ values and gradients leave, versions are released ──▶ tasks become ready
                       ──▶ its worker, and every worker that got something, asks its order for the next task
    event: a message is there ──▶ the same

A task becomes ready by the rules of the workers (`sennit.runtime.waiting`): a forward has its value, every group in
the version that `Sync` names, and its turn to write buffers; a backward has the gradient; a weight gradient has its
input gradient. A forward that its order picks starts if there is memory for what it keeps; if not, it is ready again
when there is. A step that takes time is the end of a run's last gradient, as on CPUs, or work of its own, behind
backwards that others wait for (`sennit.schedule.before_step`). Versions are in a store of the host: whoever waits for
one sees it at once. State is kept for subnets in flight only.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from sennit.errors import UserError
from sennit.schedule.before_step import before_step
from sennit.schedule.chains import Chains
from sennit.schedule.order import Order, Task, is_fixed, not_ready
from sennit.simulate.branches import Branches
from sennit.simulate.chain_links import chain_links
from sennit.simulate.channels import Channels
from sennit.simulate.cluster import Cluster
from sennit.simulate.flight import Arrival, Came, Flight, Left, Reached, Steps
from sennit.simulate.load import Load, Piece
from sennit.simulate.memory import Memory
from sennit.simulate.outcome import Outcome, Watch
from sennit.simulate.standing_still import standing_still
from sennit.simulate.turns import Turns
from sennit.simulate.versions import Versions
from sennit.supernet.sync import Sync
from sennit.trace.span import Cause, Span


class Simulation:
    """One run of a load under orders.

    Args:
        orders: one per worker.
        sync: which version is read.
        in_flight: subnets from the lowest unfinished one on that may run, as for workers.
        split: backward as I and W instead of B.
        apart: steps are work of their own.
        cluster: links, memory and host; None costs nothing.
        chains: told of subnets, for orders that ask it.
        watch: told every task.
    """

    def __init__(
        self, load: Load, orders: Sequence[Order], sync: Sync, in_flight: int, *, split: bool = False,
        apart: bool = False, cluster: Cluster | None = None, chains: Chains | None = None, watch: Watch | None = None,
    ) -> None:  # fmt: skip
        self.m, self.orders, self.sync, self.in_flight, self.split = load.micro_batches, orders, sync, in_flight, split
        self.stream: Iterator[Sequence[Piece]] = load.subnets()
        self.apart, self.watch, self.chains = apart, watch, chains
        self.host_s = cluster.host_s if cluster else 0.0
        self.channels = Channels(cluster) if cluster else None
        self.memory = Memory(cluster.limits(load.workers), self.m) if cluster else None
        self.turns: Turns | None = None
        """Of buffers, once a run writes some."""
        self.flights: dict[int, Flight] = {}
        self.versions = Versions(sync)
        self.next_id = 0
        self.ended = False
        self.idle = [True] * load.workers
        self.woken: set[int] = set()
        self.offered: set[Task] = set()
        """Ready tasks that no order has given back yet."""
        self.now = self.worked_to = 0.0
        """Until when anything was computed: versions on their way end nothing."""
        self.left_early: set[Task] = set()
        """Tasks under way that have nothing more to give but a step."""
        self.due: list[list[tuple[float, Task]]] = [[] for _ in range(load.workers)]
        """Per worker, the last gradients of runs whose groups it steps next, and when these were there."""
        self.last: Task | None = None
        """What has just ended, the maker of whatever comes of it."""
        self.came: dict[Task, tuple[float, Came]] = {}
        """Since when a task is ready, and why not earlier; if somebody watches."""
        self.events: list[tuple[float, int, int, float, Task | Arrival | Steps | None]] = []
        """Time, number, worker (-1: a message is there), begin, and what ends (None: the worker looks again)."""
        self.number = 0

    def run(self) -> Outcome:
        """Simulate to the end of the stream.

        Raises:
            UserError: an order that needs more memory than there is, stands still, or runs what is not ready.
        """
        events, orders, host_s, idle, offered = self.events, self.orders, self.host_s, self.idle, self.offered
        busy = [0.0] * len(orders)
        count = 0
        self.admit()
        while True:
            for worker in sorted(self.woken):
                if not idle[worker]:
                    continue
                if self.due[worker] and not self.backward_first(worker):
                    busy[worker] += self.step(worker)
                    continue
                while (task := orders[worker].pop()) is not None:
                    if task not in offered:
                        raise UserError(not_ready(worker, task))
                    offered.remove(task)
                    if task.kind == "F" and self.memory is not None and not self.has_room(task, worker):
                        continue
                    idle[worker] = False
                    seconds = self.seconds(task)
                    busy[worker] += seconds
                    count += 1
                    self.later(self.now + host_s + seconds, worker, task)
                    break
                else:
                    if self.due[worker]:
                        busy[worker] += self.step(worker)
            self.woken.clear()
            if not events:
                break
            self.now, _, worker, began, what = heapq.heappop(events)
            if worker >= 0:
                self.worked_to = self.now
            if isinstance(what, Task):
                idle[worker] = True
                self.woken.add(worker)
                self.last = what
                if self.watch is not None:
                    ready, (left, cause, of, by) = self.came.pop(what)
                    self.watch(Span(worker, *what, began, self.now, ready, left, cause, of, str(by or "")))
                self.done(what, worker)
            elif isinstance(what, Steps):
                idle[worker] = True
                self.woken.add(worker)
                if self.watch is not None:
                    there, last = what.after[-1]
                    told = (there, there, "gradient", "", str(last))
                    self.watch(Span(worker, "U", last.seq_id, -1, -1, began, self.now, *told))
                for _, self.last in what.after:
                    self.after_step(self.last)
            elif what is not None:
                self.arrived(what)
            else:
                self.look(worker)
        self.check_finished()
        return Outcome(self.worked_to, busy, count, self.next_id, self.memory.peak if self.memory else [])

    def seconds(self, task: Task) -> float:
        """Device time of a task. What has been recorded of a real run can be played by overriding it."""
        flight = self.flights[task.seq_id]
        piece = flight.pieces[task.run]
        seconds = piece.cost[_COST[task.kind]]
        if piece.step and task.kind in "BW" and not self.apart:
            flight.begun[task.run] += 1
            if flight.begun[task.run] == self.m:
                self.later(self.now + self.host_s + seconds, -1, Left(task, Came(self.now, "start", "", None)))
                seconds += piece.step
        return seconds

    def backward_first(self, worker: int) -> bool:
        """Whether a worker has a backward to run before the steps that are due there."""
        here = (t for t in self.offered if self.flights[t.seq_id].pieces[t.run].where(t.micro_batch) == worker)
        return before_step(here, min(task.seq_id for _, task in self.due[worker]))

    def step(self, worker: int) -> float:
        """All steps that are due on a worker begin. Returns how long they take."""
        steps, self.due[worker] = Steps(self.due[worker]), []
        seconds = self.step_seconds(worker, [task for _, task in steps.after])
        self.idle[worker] = False
        self.later(self.now + seconds, worker, steps)
        return seconds

    def step_seconds(self, worker: int, tasks: Sequence[Task]) -> float:
        """Device time of the steps of the runs of which these are the last gradients."""
        return sum(self.flights[task.seq_id].pieces[task.run].step for task in tasks)

    def later(self, at: float, worker: int, what: Task | Arrival | Steps | None) -> None:
        self.number += 1
        heapq.heappush(self.events, (at, self.number, worker, self.now, what))

    def look(self, worker: int) -> None:
        """A worker asks its order, though nothing has come."""
        self.woken.add(worker)

    def has_room(self, task: Task, worker: int) -> bool:
        """Whether a forward has memory for what it keeps. If not, it is given to its order once more when it has.

        Raises:
            UserError: the order is a list, which goes on with nothing else.
        """
        assert self.memory is not None
        size, fixed = self.flights[task.seq_id].pieces[task.run].held_bytes, is_fixed(self.orders[worker])
        if self.memory.ask(task, worker, size, fixed=fixed):
            return True
        if fixed:
            raise UserError(
                f"this schedule needs more memory than worker {worker} has: it holds "
                f"{self.memory.held[worker]:,.12g} of {self.memory.limits[worker]:,.12g} bytes when the turn of "
                f"forward {task} comes, which needs {size:,.12g}. "
                "Give it more memory, a shorter warm-up, or a schedule that does not keep a fixed list (csp)"
            )
        return False

    def check_finished(self) -> None:
        if self.flights:
            raise UserError(standing_still(self.flights, self.offered))

    # -- what a finished task brings

    def done(self, task: Task, worker: int) -> None:
        if task in self.left_early:
            self.left_early.remove(task)
        else:
            self.leave(task, worker)
        self.complete(task, worker)

    def leave_early(self, task: Task) -> None:
        """A task goes on, with nothing more to give but a step."""
        self.last = task
        self.left_early.add(task)
        self.leave(task, self.flights[task.seq_id].pieces[task.run].where(task.micro_batch))

    def leave(self, task: Task, worker: int) -> None:
        """What a task has made sets out for those who wait for it."""
        kind, y, j, r = task
        flight = self.flights[y]
        pieces, branches = flight.pieces, flight.branches
        if kind == "F":
            if self.turns is not None:
                for follower, group in self.turns.passed(task, pieces[r].moves):
                    self.enter(follower, Came(self.now, "buffer", group, self.last))
            if r + 1 < len(pieces):
                for reader in (r + 1,) if branches is None else branches.readers[r]:
                    self.hand_over(Task("F", y, j, reader), worker, pieces[r].out_bytes, "value")
            else:
                self.ready(Task("I" if self.split else "B", y, j, r), "gradient", "loss")
        elif kind != "W":
            for source in ((r - 1,) if r else ()) if branches is None else branches.sources[r]:
                self.hand_over(Task(kind, y, j, source), worker, pieces[source].out_bytes, "gradient")
            if kind == "I":
                self.ready(Task("W", y, j, r), "weight")

    def complete(self, task: Task, worker: int) -> None:
        """A gradient of weights more is there; with the last one the run's groups step."""
        kind, y, _, r = task
        if kind in "FI":
            return
        flight = self.flights[y]
        flight.left[r] -= 1
        if not flight.left[r] and flight.pieces[r].step and self.apart:
            self.due[worker].append((self.now, task))
        elif not flight.left[r]:
            self.after_step(task)
        if self.memory is not None:
            for forward in self.memory.freed(task, worker, flight.pieces[r].held_bytes):
                self.enter(forward, Came(self.now, "admitted", "memory", task))

    def hand_over(self, task: Task, made_on: int, size: float, cause: Cause) -> None:
        """What `task` waits for has been made; it has to reach the worker of `task`."""
        came = Came(self.now, cause, "", self.last)
        if self.channels is not None:
            to = self.flights[task.seq_id].pieces[task.run].where(task.micro_batch)
            if to != made_on and (at := self.channels.send(made_on, to, size, self.now)) > self.now:
                self.later(at, -1, Arrival(task, came))
                return
        self.come(task, came)

    def arrived(self, what: Arrival) -> None:
        task, came = what
        if isinstance(what, Left):
            self.leave_early(task)
        elif isinstance(what, Reached):
            self.last = task
            self.release(self.flights[task.seq_id], task.seq_id, task.run)
        elif task.micro_batch < 0:
            self.opened(task.seq_id, task.run, came)
        else:
            self.come(task, came)

    def come(self, task: Task, came: Came) -> None:
        """A value or gradient that a task reads is there."""
        flight = self.flights[task.seq_id]
        if flight.branches is not None and flight.branches.waits(task):
            return
        if task.kind == "F" and flight.closed[task.run]:
            flight.held[task.run].append(task.micro_batch)
        else:
            self.take_turn(task, came)

    def take_turn(self, task: Task, came: Came) -> None:
        """Nothing is left to wait for, but maybe for a forward's turn to write buffers."""
        if task.kind != "F" or self.turns is None or not self.turns.hold(task):
            self.enter(task, came)

    def ready(self, task: Task, cause: Cause, of: str = "") -> None:
        self.enter(task, Came(self.now, cause, of, self.last))

    def enter(self, task: Task, came: Came) -> None:
        """The task can run: its worker's order is told."""
        if self.watch is not None:
            self.came[task] = self.now, came
        piece = self.flights[task.seq_id].pieces[task.run]
        worker = piece.spread[task.micro_batch] if piece.spread else piece.worker
        self.offered.add(task)
        self.orders[worker].add(task)
        self.woken.add(worker)

    # -- versions

    def after_step(self, task: Task) -> None:
        """All gradients of a task's run are there, and its groups have stepped."""
        flight = self.flights[task.seq_id]
        if reach := flight.pieces[task.run].reach:
            self.later(self.now + reach, -1, Reached(task, Came(self.now, "version", "", task)))
        else:
            self.release(flight, task.seq_id, task.run)

    def release(self, flight: Flight, y: int, r: int) -> None:
        """The new versions of a run are there."""
        piece = flight.pieces[r]
        for group, version in self.versions.step(y, piece.groups):
            self.publish(group, version)
        if self.channels is not None and piece.swap_bytes:
            for worker in piece.workers:
                self.channels.swap(worker, piece.swap_bytes, self.now, out=True)
        flight.open_runs -= 1
        if not flight.open_runs:
            self.finish(y)

    def finish(self, y: int) -> None:
        del self.flights[y]
        self.sync.forget(y)
        if self.chains is not None:
            self.chains.forget(self.lowest())
        self.admit()

    def publish(self, group: str, version: int) -> None:
        """A group has a new version: runs that waited for it alone are open."""
        for z, run in self.versions.publish(group, version):
            self.opened(z, run, Came(self.now, "version", group, self.last))

    def opened(self, y: int, r: int, came: Came) -> None:
        """One thing less to wait for on a run."""
        flight = self.flights[y]
        flight.closed[r] -= 1
        if not flight.closed[r]:
            for j in flight.held[r]:
                self.take_turn(Task("F", y, j, r), came)
            flight.held[r].clear()

    # -- subnets come

    def admit(self) -> None:
        """Let subnets in."""
        while not self.ended and self.next_id < self.lowest() + self.in_flight:
            pieces = next(self.stream, None)
            if pieces is None:
                self.ended = True
                return
            self.take_in(self.next_id, pieces)
            self.next_id += 1

    def lowest(self) -> int:
        """The lowest unfinished subnet."""
        return next(iter(self.flights), self.next_id)

    def take_in(self, y: int, pieces: Sequence[Piece]) -> None:
        self.sync.observe(y, dict.fromkeys(group for piece in pieces for group in piece.groups))
        n = len(pieces)
        flight = self.flights[y] = Flight(pieces, [0] * n, [[] for _ in range(n)], [self.m] * n, [0] * n, n)
        if any(piece.sources is not None for piece in pieces):
            flight.branches = Branches(pieces, self.m)
        came = Came(self.now, "admitted" if self.last else "start", "", self.last)
        for r, piece in enumerate(pieces):
            flight.closed[r] += self.versions.admit(y, r, piece.groups)
            if self.channels is not None and piece.swap_bytes:
                self.fetch(flight, y, r)
        if self.memory is not None:
            self.memory.admit(y, pieces)
        if self.turns is None and any(piece.moves for piece in pieces):
            self.turns = Turns(self.m)
        if self.turns is not None:
            self.turns.admit(y, pieces)
        if self.chains is not None:
            self.chains.admit(y, chain_links(pieces, lambda group: self.sync.reads(group, y), split=self.split))
        for r in (0,) if flight.branches is None else flight.branches.first:
            for j in range(self.m):
                self.come(Task("F", y, j, r), came)

    def fetch(self, flight: Flight, y: int, r: int) -> None:
        """The layers of a run set out from the host, to every worker that needs them."""
        assert self.channels is not None
        for worker in flight.pieces[r].workers:
            at = self.channels.swap(worker, flight.pieces[r].swap_bytes, self.now, out=False)
            if at > self.now:
                flight.closed[r] += 1
                self.later(at, -1, Arrival(Task("F", y, -1, r), Came(self.now, "version", "swap", self.last)))

    def awaited(self, y: int, r: int) -> bool:
        """Whether a subnet in flight waits for the groups of a run."""
        return self.versions.awaited(y, self.flights[y].pieces[r].groups)


_COST = {"F": 0, "B": 1, "I": 2, "W": 3}
