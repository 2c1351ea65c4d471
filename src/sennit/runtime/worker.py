"""`Worker`: one process on one device. It decides for itself what to run next.

    loop:  hear messages ─▶ admit subnets ─▶ see which versions are there ─▶ run one task
           on a GPU, which has not begun what has been launched: admit subnets behind a task, or for want of one

A task is the forward or backward of one micro-batch of one subnet on one run of steps. A forward waits for the
values it reads, for every group it reads to be in the version that `Sync` names, and for its buffers' turn. A
backward waits for the gradients of what it sent on. Nothing waits for a stage or for another worker as such.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sennit.errors import UserError
from sennit.memory.asked import ASKED
from sennit.runtime.batches import Batches
from sennit.runtime.bells import LOW
from sennit.runtime.channel import Channel, Message
from sennit.runtime.control import Line
from sennit.runtime.delivery import Delivery
from sennit.runtime.entry import Entry
from sennit.runtime.passing import Passing
from sennit.runtime.put_off import PutOff
from sennit.runtime.reading import Exact, Newest
from sennit.runtime.reasons import Reasons, signed
from sennit.runtime.recorder import Recorder
from sennit.runtime.scheduling import fixed, name_of_policy, policy_of, setting_of
from sennit.runtime.share import DeviceStore, NoGate, Share, VersionGate
from sennit.runtime.slot_use import SlotUse
from sennit.runtime.stall import Quiet, awaited
from sennit.runtime.stepping import Stepping
from sennit.runtime.stopwatch import Stopwatch
from sennit.runtime.tasks import Tasks
from sennit.runtime.waiting import Waiting
from sennit.schedule.before_step import before_step
from sennit.schedule.chains import Chains
from sennit.schedule.order import Order, Task, not_ready
from sennit.schedule.policy import MODULES
from sennit.trace.access import AccessLog
from sennit.trace.events import trace_beside

IDLE_S = 0.0002
"""Longest nap while payloads are on their way, whose end nobody tells, seconds."""

BACKLOG = 2
"""Launched tasks that keep a device busy while its worker's host sees to something else: one may be about to end."""

QUIET_S = 0.05
"""Longest nap while messages and bells tell of everything, seconds."""


class Worker:
    """One worker process.

    Args:
        rank: 0 .. workers-1.
        share: what was made before the fork.
        store: slots on this worker's device.
        channel: to the other workers; `peers` are its control lines.
        launcher: control line to the process that started this one.
        log: access log of this worker.
    """

    def __init__(
        self, rank: int, share: Share, store: DeviceStore, channel: Channel, peers: Iterable[Line], launcher: Line,
        log: AccessLog, device: torch.device,
    ) -> None:  # fmt: skip
        self.rank, self.share, self.store, self.channel, self.launcher = rank, share, store, channel, launcher
        self.log, self.bells = log, share.bells
        self.lines = [*peers, launcher]
        sync = share.built.sync(share.placement.workers)
        sync.start(share.versions)
        rule = share.recipe.sync_rule
        policy = policy_of(share.recipe, share.placement)
        chains = Chains(share.recipe.micro_batches, share.placement.workers) if policy.chained else None
        self.ready, self.policy = Reasons(share.board, share.in_flight), self.make_order(chains)
        self.offered: set[Task] = set()
        """Ready tasks that the order has not given back yet."""
        self.recorder = Recorder(trace_beside(log.path), rank, share.board, self.ready)
        gate = share.parts.gate or (NoGate if rule.kind == "asp" else VersionGate)
        self.waiting = Waiting(share.host, sync, gate(self), self.ready)
        self.batches = Batches(share.built, share.placement, device)
        self.entry = Entry(
            rank, share, sync, chains, fixed(policy), self.ready, self.waiting, self.batches, self.lines
        )  # fmt: skip
        self.subnets, self.coming = self.entry.subnets, self.entry.coming
        self.stepping = Stepping(
            rank, share, store, log, lambda worker, message: self.send(worker, message, []), self.report,
            self.entry.settle, lambda: self.entry.halt,
        )  # fmt: skip
        reading = Newest(store, rule.stash) if rule.kind == "asp" else Exact(store, sync)
        store.announce(share.bells.ring)
        self.slots = SlotUse(store, reading, self.policy, lambda: int(share.low.min()), share.placement.ahead)
        self.tasks = Tasks(
            share, store, reading, self.ready, self.waiting, self.batches, self.stepping, log, self.send, channel.most,
            self.report, device,
        )  # fmt: skip
        self.delivery = Delivery(self.subnets, self.tasks, self.ready, self.stepping)
        self.entry.join(self.stepping, self.slots, self.delivery, self.recorder)
        self.passing: Passing | None = None
        """Where new versions go from device to device."""
        self.said_cut = -1
        self.stopped = False
        self.launches = share.placement.device == "cuda"
        """Whether a task that this host has done with is still to be computed."""
        self.clock = Stopwatch(device)
        # a list says when, and an order from a file is told of all that is ready
        ours = share.placement.split and not fixed(policy) and name_of_policy(share.recipe, share.placement) in MODULES
        self.put_off = PutOff(self.ready, self.clock.behind, self.awaited) if self.launches and ours else None
        self.quiet = Quiet()
        self.heard = 0
        """Messages from the launcher."""

    def make_order(self, chains: Chains | None) -> Order:
        """Which of the ready tasks is run next."""
        recipe, placement = self.share.recipe, replace(self.share.placement, in_flight=self.share.in_flight)
        setting = setting_of(recipe, placement, self.share.start)
        end = setting.end
        if setting.asynchronous:
            setting = replace(setting, end=lambda: self.entry.end)
        else:
            setting = replace(setting, end=lambda: min(end(), self.entry.halt))
        return policy_of(recipe, placement).order(self.rank, replace(setting, awaited=self.awaited, chains=chains))

    def awaited(self, seq_id: int, run: int) -> bool:
        """Whether a forward here waits for a version that this run of `seq_id` makes."""
        return any((group, seq_id) in self.waiting.awaited for group in self.subnets[seq_id].read_by_run[run])

    # -- the loop

    def run(self) -> None:
        """Work until the launcher says stop."""
        while not self.stopped:
            self.hear()
            if self.stopped:
                break  # no nap any more
            if not self.launches:
                self.entry.admit()
            self.store.poll()
            self.stepping.ask()
            self.step()
            self.waiting.look()  # last: a forward that reads what has just been stepped is next
            task = self.next_task()
            if task is None:
                if self.offered:  # the order gives none of these yet, so steps give way for nothing
                    self.step(idle=True)
                if self.put_off:  # one of them is next unless a message comes before the device has ended
                    self.flush()
                    continue
                if (self.launches and self.entry.admit()) or self.hear_awaited():
                    continue
                self.report_cut()
                self.slots.look_ahead()
                if self.stepping.waits():  # norms come soon, without a bell; messages are heard meanwhile
                    self.flush()
                elif not (self.hurries() and self.prepare()) and self.bells.put_up(self.rank, self.unannounced()):
                    self.nap()
                continue
            self.go_on()
            subnet = self.subnets[task.seq_id]
            with self.clock.timed() as lap:
                lap.then = self.recorder.task(task)
                self.slots.begin(task, subnet)
                self.tasks.execute(task, subnet)
                lap.waited = self.tasks.waited
            subnet.left -= 1
            self.entry.settle(subnet)
            if self.launches:
                self.behind(task)
        self.batches.close()
        self.coming.programs.close()

    def behind(self, task: Task) -> None:
        """A task has been launched. While the device computes it, see to what comes: else the next forward waits for
        that, and the device for it."""
        self.stepping.ask()
        self.entry.admit()
        self.offer()
        # a backward takes the device longer than the host; between two forwards the host is the one that is waited for
        awaited = bool(self.offered) or self.channel.expecting() or self.stepping.waits()
        if self.put_off and not self.clock.behind():  # one of them is next
            awaited = True
        if task.kind not in "FW" and not awaited:
            self.prepare(record=self.coming.programs.wanted)
        while self.clock.behind() >= BACKLOG and self.prepare(record=self.coming.programs.wanted):
            pass

    def hurries(self) -> bool:
        """Whether an idle worker sees to what comes. On a GPU the next message may come any moment, and a batch takes
        longer than a forward: so only to what would be waited for next, if another process records programs."""
        if not (self.launches and self.coming.programs.wanted):
            return True
        missing = self.batches.missing(self.subnets.values())
        return missing is not None and missing.seq_id <= int(self.share.low.min()) + 1

    def prepare(self, *, record: bool = True) -> bool:
        """See to something that comes: a batch, or with `record` a program. Returns whether there was something."""
        if self.launches and self.batches.prepare(self.subnets.values()):
            return True
        return record and self.coming.prepare(self.entry.next_id, self.entry.limit)

    def step(self, *, idle: bool = False) -> None:
        """Take the steps that can be taken; unless `idle`, if no backward goes before them."""
        if self.stepping.told():
            self.offer()
            if idle or self.stepping.at_once or not before_step(self.offered, self.stepping.next_step()):
                with self.steps_from(None):
                    self.stepping.look()
        if self.stepping.due:
            self.offer()
            if idle or not before_step(self.offered, self.stepping.next_due()):
                with self.steps_from(None):
                    # a run that is stopped ends no earlier than before `next_id`: what is the step of a subnet that has
                    # not been let in may never be one
                    self.stepping.apply_due(min(self.entry.end, self.entry.next_id))

    def offer(self) -> None:
        """Let the order know what has become ready."""
        for ready in self.ready.take():
            self.slots.ready(ready, self.subnets[ready.seq_id])
            if self.put_off is not None and ready.kind == "W":
                self.put_off.add(ready)
            else:
                self.give(ready)
        for ready in self.slots.waiting():
            self.give(ready)

    def give(self, ready: Task) -> None:
        """Let the order have a task."""
        self.offered.add(ready)
        self.policy.add(ready)

    def next_task(self) -> Task | None:
        self.offer()
        if self.put_off:
            for ready in self.put_off.urgent(self.offered):
                self.give(ready)
        if (task := self.given_back()) is not None or self.put_off is None:
            return task
        for ready in self.put_off.due():
            self.give(ready)
        return self.given_back()

    def given_back(self) -> Task | None:
        """The task that the order wants to be run next, of those that it has."""
        while (task := self.policy.pop()) is not None:
            if task not in self.offered:
                raise UserError(not_ready(self.rank, task))
            self.offered.remove(task)
            if task.seq_id < self.entry.halt and self.slots.room_for(task, self.subnets[task.seq_id]):
                return task
        return None

    def flush(self) -> None:
        """Have what is to be sent sent on."""
        self.channel.flush()
        self.launcher.flush()

    def nap(self) -> None:
        """Wait for a message or a bell, or a little for what comes without one."""
        self.flush()
        writing = [line for line in self.lines if line.out]
        unannounced = self.channel.expecting() or self.store.expecting()
        longest = IDLE_S if unannounced else QUIET_S
        listening = [*self.lines, *self.coming.programs.open_lines()]
        since = time.monotonic()
        heard, wrote, _ = select.select([*listening, self.bells.fileno_of(self.rank)], writing, [], longest)
        self.share.elsewhere.rested(since)
        self.bells.take_down(self.rank)
        if heard or wrote:
            self.go_on()
        elif self.quiet.long():
            self.launcher.send(("quiet", self.heard, awaited(self)))

    def unannounced(self) -> set[str]:
        """What is awaited that comes without a message."""
        groups = self.waiting.groups()
        groups.update(group for group, _ in self.stepping.due)
        if self.entry.next_id < self.entry.limit or self.slots.aside:
            groups.add(LOW)
        if self.passing is not None:
            groups.add(ASKED)
        return groups

    def go_on(self) -> None:
        """Something happens here."""
        if self.quiet.over():
            self.launcher.send(("going",))

    # -- messages

    def hear(self) -> None:
        """Take in all messages."""
        for kind, *rest in self.launcher.receive():
            self.heard += 1
            if kind == "limit":
                self.entry.limit = rest[0]
            elif kind == "arch":
                self.coming.drawn[rest[0]] = rest[1]
            elif kind == "halt":
                self.entry.halt = min(self.entry.halt, rest[0])  # an earlier one may have been found here meanwhile
                self.entry.limit = rest[0]
                self.said_cut = -1  # also if that is where the last cut was: more has been computed since
            elif kind == "pause":
                self.entry.limit = min(self.entry.limit, self.entry.next_id)
                self.launcher.send(("paused", self.entry.next_id))
            elif kind == "gather":
                self.share.elsewhere.gather(*rest)
            elif kind == "stop":
                self.stopped = True
        for message, tensors in self.channel.receive():
            self.arrived(message, tensors)

    def hear_awaited(self) -> bool:
        """With nothing to do, take in a message whose tensors are still on their way. Returns whether there was one."""
        if (found := self.channel.awaited()) is None:
            return False
        self.arrived(*found)
        return True

    def arrived(self, message: Message, tensors: list[Tensor | None]) -> None:
        """A message is here."""
        if message.kind == "V":
            assert self.passing is not None
            self.passing.arrived(message, tensors)
        elif message.seq_id in self.subnets:
            with self.steps_from(message) if self.delivery.brings_steps(message) else nullcontext():
                self.delivery.put(message, tensors)
        else:
            assert message.seq_id >= self.entry.next_id, f"for a subnet that was put away: {message}"
            self.delivery.keep(message, tensors)

    @contextmanager
    def steps_from(self, message: Message | None) -> Iterator[None]:
        """Time optimizer steps that no task of this worker brings about; `message` allows them."""
        notes = self.recorder.outside(message)
        with self.clock.timed() as lap:
            yield
            lap.then = self.recorder.steps(message, notes)

    def send(self, worker: int, message: Message, tensors: list[Tensor | None]) -> None:
        signed(message, self.share.board.task)
        if worker == self.rank:
            self.delivery.put(message, tensors)
        else:
            self.channel.send(worker, message, tensors)

    def report(self, message: Any) -> None:
        if message[0] == "nan":
            self.entry.halt = min(self.entry.halt, message[1])
        self.launcher.send(message)

    def report_cut(self) -> None:
        """Everything below the limit is finished here: say so, once per limit."""
        limit = self.entry.end
        if self.said_cut == limit or self.entry.next_id < self.entry.limit:
            return
        if any(y < limit for y in self.subnets) or self.stepping.due_before(limit):
            return
        self.stepping.settle()
        self.store.flush()
        busy = self.clock.total()
        self.log.flush()
        counters = (
            part.counters()
            for part in (self.store, self.tasks.executor, self.share.elsewhere, self.coming.programs, self.batches)
        )
        self.recorder.count({name: value for part in counters for name, value in part.items()})
        self.recorder.flush()
        if self.tasks.retry.again:
            self.launcher.send(("again", self.rank, self.tasks.retry.again))
        self.said_cut = int(limit)
        self.launcher.send(("cut", int(limit), busy, self.store.counted()))
