"""`Worker`: one process on one device. It decides for itself what to run next.

    loop:  hear messages ─▶ admit subnets ─▶ see which versions are there ─▶ step groups ─▶ run one task

A task is the forward or backward of one micro-batch of one subnet on one run of steps. A forward waits for the
values it reads, for every group it reads to be in the version that `Sync` names, and for its buffers' turn. A
backward waits for the gradients of what it sent on. Nothing waits for a stage or for another worker as such.
"""

from __future__ import annotations

import copy
import math
import select
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from sennit.data.loader import BatchSource
from sennit.errors import UserError
from sennit.executor.eager import EagerExecutor, Gradients, RunContext
from sennit.plan.plan import Plans
from sennit.program.cut import Run
from sennit.program.run import bind_inputs
from sennit.program.recordings import spec_of
from sennit.program.step import Step
from sennit.program.template import map_tree
from sennit.recipe import Placement, Recipe
from sennit.runtime.channel import Channel, Message
from sennit.runtime.control import Line, PeerGone
from sennit.runtime.dryrun import names_nondeterminism
from sennit.runtime.fold import GroupFold, Use
from sennit.runtime.subnet import BufferOrder, Subnet, Word, make_subnet
from sennit.schedule.csp import CspOrder
from sennit.schedule.ready import Ready, TaskId
from sennit.space.model_space import as_call
from sennit.space.names import canonical_names
from sennit.supernet.build import Built
from sennit.supernet.clip import Clip, factor, fold_norms, grad_norms, scale_
from sennit.supernet.context import StepContext, step_context
from sennit.supernet.loss import count_terms
from sennit.supernet.sync import CspSync
from sennit.supernet.task import fold_losses
from sennit.trace.access import AccessLog, Phase

IDLE_S = 0.0005
"""Longest nap while a version written by another worker is awaited, seconds."""

QUIET_S = 0.05
"""Longest nap while only messages are awaited, seconds."""


class DeviceStore(Protocol):
    """A worker's view of the store, with slots on its device."""

    def holds(self, group: str, version: int) -> bool:
        """Whether that version of a parameter group can be acquired now."""
        ...

    def version(self, group: str) -> int:
        """The newest version of a parameter group that this worker knows of."""
        ...

    def acquire(self, group: str, version: int) -> dict[str, Tensor]:
        """Leaves of a parameter group in that version, on the device."""
        ...

    def seen(self, group: str, version: int) -> int:
        """The version word beside the bytes that `acquire` gave out."""
        ...

    def buffers(self, group: str) -> dict[str, Tensor]:
        """Tensors of a buffer group, to be written in place."""
        ...

    def remember(self, group: str) -> None:
        """Copy a buffer group aside, so that a subnet's forward can be taken back."""
        ...

    def move(self, group: str, word: Word) -> None:
        """A forward has written the buffers; publish their word."""
        ...

    def constant(self, name: str) -> Tensor: ...

    def step(self, group: str, grads: dict[str, Tensor], lr: float, version: int) -> None:
        """Optimizer step of the group to `version`, published."""
        ...

    def flush(self) -> None:
        """Bring everything that this worker has changed to the host store, and wait until it is there."""
        ...


class Gate(Protocol):
    """Decides when a forward may read a group. The real one asks for the version; tests put broken ones here."""

    def open(self, group: str, seq_id: int, version: int) -> bool: ...


@dataclass(frozen=True)
class Parts:
    """Parts of a worker that a test may replace by broken ones, to show that they are caught.

    Attributes:
        gate: makes the check that opens a group; None for `VersionGate`.
        store: makes the slots of a CPU worker from the host store; None for `CpuStore`.
    """

    gate: Callable[[Worker], Gate] | None = None
    store: Callable[[Any], DeviceStore] | None = None


@dataclass
class Share:
    """What all workers share, made before the fork."""

    built: Built
    recipe: Recipe
    placement: Placement
    plans: Plans
    host: Any
    low: np.ndarray
    start: int
    in_flight: int
    words: dict[str, Word]
    versions: dict[str, int]
    parts: Parts
    probing: bool = False
    """Tell the launcher the norm of every group's gradient, before clipping."""


@dataclass
class Pending:
    """A group whose gradient is complete, waiting for the global norm."""

    grads: dict[str, Tensor]
    norms: dict[str, float]


@dataclass
class _Flight:
    """Mailboxes of one (subnet, micro-batch, run)."""

    values: dict[int, tuple[Any, bool]] = field(default_factory=dict)
    grads: dict[int, dict[int, Tensor | None]] = field(default_factory=dict)
    context: RunContext | None = None


class VersionGate:
    """Opens when the store holds exactly the version that `Sync` names."""

    def __init__(self, worker: Worker) -> None:
        self.store = worker.store

    def open(self, group: str, seq_id: int, version: int) -> bool:
        return self.store.holds(group, version)


class Worker:
    """One worker process.

    Args:
        rank: 0 .. workers-1.
        share: what was made before the fork.
        store: slots on this worker's device.
        channel: to the other workers.
        launcher: control line to the process that started this one.
        log: access log of this worker.
    """

    def __init__(
        self, rank: int, share: Share, store: DeviceStore, channel: Channel, peers: Iterable[Line], launcher: Line,
        log: AccessLog, device: torch.device,
    ) -> None:  # fmt: skip
        self.rank, self.share, self.store, self.channel, self.launcher = rank, share, store, channel, launcher
        self.log, self.device = log, device
        self.built, self.recipe, self.host = share.built, share.recipe, share.host
        self.m = self.recipe.micro_batches
        self.clip: Clip = self.recipe.clipping
        self.sync: CspSync = self.built.sync()
        self.sync.start(share.versions)
        self.order = BufferOrder()
        self.order.start(share.words)
        self.lines = [*peers, launcher]
        recorder = self.built.recordings.recorder
        modules = copy.deepcopy(recorder.root)  # slots are bound into these; the recorder keeps its own
        self.executor = EagerExecutor(modules, canonical_names(modules), self.built.frozen_names, device)
        self.kept = frozenset(self.built.always[0] | self.built.always[1]) if self.recipe.sharing.kind == "frozen" else frozenset[str]()
        self.source = BatchSource(self.built.batches, share.placement.loaders, share.placement.prefetch)
        self.gate: Gate = (share.parts.gate or VersionGate)(self)
        self.ready, self.tasks = Ready(), CspOrder()
        self.subnets: dict[int, Subnet] = {}
        self.flights: dict[tuple[int, int, int], _Flight] = {}
        self.folds: dict[tuple[int, str], GroupFold] = {}
        self.early: dict[int, list[tuple[Message, list[Tensor | None]]]] = {}
        self.norms: dict[int, dict[str, float | None]] = {}
        self.pending: dict[int, dict[str, Pending]] = {}
        self.versions_awaited: dict[tuple[str, int, int], None] = {}
        self.words_awaited: dict[tuple[str, Word], None] = {}
        self.batches: dict[int, list[tuple[Any, Any]]] = {}
        self.feed = None if self.built.sampler().learning else self.built.feed()
        if self.feed is not None:
            self.feed.replay(share.start, [])
        self.drawn: dict[int, dict[str, Any]] = {}
        self.next_id = share.start
        self.limit = share.start
        self.halt = math.inf
        self.reported = -1
        self.delayed_due: dict[tuple[str, int], None] = {}
        if not rank:  # gradients that waited when the last run ended
            for group in self.host.delayed:
                for x in range(self.store.version(group) + 1, share.start):
                    self.delayed_due[group, x] = None
        self.stopped = False
        self.busy = 0.0
        self.where = ""

    # -- the loop

    def run(self) -> None:
        """Work until the launcher says stop."""
        while not self.stopped:
            self.hear()
            self.admit()
            self.look()
            self.apply_delayed()
            task = self.next_task()
            if task is not None:
                begin = time.perf_counter()
                self.execute(task)
                self.busy += time.perf_counter() - begin
            else:
                self.report_cut()
                self.nap()
        self.source.close()

    def next_task(self) -> TaskId | None:
        self.tasks.add(self.ready.take())
        while (task := self.tasks.pop()) is not None:
            if task.seq_id < self.halt:
                return task
        return None

    def nap(self) -> None:
        """Wait for a message, or a little for what comes without one."""
        self.channel.flush()
        self.launcher.flush()
        writing = [line for line in self.lines if line.out]
        without = self.versions_awaited or self.words_awaited or self.delayed_due or self.next_id < self.limit
        without = without or self.channel.expecting()
        select.select(self.lines, writing, [], IDLE_S if without else QUIET_S)

    def hear(self) -> None:
        """Take in all messages."""
        for kind, *rest in self.launcher.receive():
            if kind == "limit":
                self.limit = rest[0]
            elif kind == "arch":
                self.drawn[rest[0]] = rest[1]
            elif kind == "halt":
                self.halt = self.limit = rest[0]
            elif kind == "pause":
                self.limit = min(self.limit, self.next_id)
                self.launcher.send(("paused", self.next_id))
            elif kind == "stop":
                self.stopped = True
        for message, tensors in self.channel.receive():
            if message.seq_id in self.subnets:
                self.deliver(message, tensors)
            elif message.seq_id >= self.next_id:
                self.early.setdefault(message.seq_id, []).append((message, tensors))

    def deliver(self, message: Message, tensors: list[Tensor | None]) -> None:
        y, j = message.seq_id, message.micro_batch
        if message.kind == "F":
            for (value, wanted), tensor in zip(message.items, tensors, strict=True):
                self.arrive(y, j, message.run, value, tensor, wanted)
            for value, shape in message.facts.items():
                self.arrive(y, j, message.run, value, shape, False)
        elif message.kind == "B":
            for (key, _), tensor in zip(message.items, tensors, strict=True):
                self.flights[y, j, message.run].grads.setdefault(key[0], {})[key[1]] = tensor
            for value in {key[0] for key, _ in message.items}:
                self.ready.happened(("grad", y, j, message.run, value, message.source))
        elif message.kind == "P":
            part = {key: tensor for (key, _), tensor in zip(message.items, tensors, strict=True)}
            self.fold(self.subnets[y], message.facts["group"], j, part)
        elif message.kind == "N":
            self.add_norms(y, message.facts)

    def arrive(self, y: int, j: int, run: int, value: int, payload: Any, wanted: bool) -> None:
        self.flights.setdefault((y, j, run), _Flight()).values[value] = (payload, wanted)
        self.ready.happened(("value", y, j, run, value))

    # -- subnets come in

    def admit(self) -> None:
        """Take in subnets up to the limit, as many as may be in flight from the lowest unfinished one on."""
        while self.next_id < min(self.limit, int(self.share.low.min()) + self.share.in_flight):
            if self.feed is not None:
                drawn = self.feed.draw()
            elif self.next_id in self.drawn:
                drawn = self.drawn.pop(self.next_id)
            else:
                return
            self.next_id += 1
            self.take_in(self.next_id - 1, drawn)

    def take_in(self, y: int, drawn: dict[str, Any]) -> None:
        plans = self.share.plans
        subnet = make_subnet(
            y, self.built.program(drawn), self.built.groups, self.kept, self.sync, self.order,
            lambda block: plans.worker(y, 0, block), self.rank, self.m,
        )  # fmt: skip
        self.subnets[y] = subnet
        for run in subnet.own:
            for j in range(self.m):
                self.flights.setdefault((y, j, run.index), _Flight())
                self.ready.add(TaskId("F", y, j, run.index), self.events_of(subnet, run, j))
        for message, tensors in self.early.pop(y, ()):
            self.deliver(message, tensors)
        self.settle(subnet)

    def events_of(self, subnet: Subnet, run: Run, j: int) -> list[Any]:
        """What the forward of micro-batch j still waits for."""
        y = subnet.seq_id
        events: list[Any] = [("value", y, j, run.index, a.value) for a in run.arrivals]
        for group in subnet.read_by_run[run.index]:
            version = self.sync.reads(group, y)
            if not self.gate.open(group, y, version):
                event = (group, y, version)
                self.versions_awaited[event] = None
                events.append(("version", *event))
        seen: set[str] = set()
        for group, use in subnet.moved_by_run[run.index]:
            if group in seen:
                continue  # later uses inside the run follow the first
            seen.add(group)
            word = self.word_before(subnet, group, j, use)
            if self.word(group) != word:
                self.words_awaited[group, word] = None
                events.append(("word", group, word))
        return events

    def word_before(self, subnet: Subnet, group: str, j: int, use: int) -> Word:
        if use:
            return (subnet.seq_id, j, use - 1)
        return (subnet.seq_id, j - 1, subnet.uses[group] - 1) if j else subnet.before[group]

    def word(self, group: str) -> Word:
        seq_id, micro, use = (int(n) for n in self.host.words[group][0][:3])
        return seq_id, micro, use

    def look(self) -> None:
        """See which awaited versions and buffer words are there."""
        for event in [e for e in self.versions_awaited if self.gate.open(*e)]:
            del self.versions_awaited[event]
            self.ready.happened(("version", *event))
        for group, word in [e for e in self.words_awaited if self.word(e[0]) == e[1]]:
            del self.words_awaited[group, word]
            self.ready.happened(("word", group, word))

    # -- tasks

    def execute(self, task: TaskId) -> None:
        subnet = self.subnets[task.seq_id]
        run = subnet.runs[task.run]
        context = StepContext.of(
            self.recipe.seed, task.seq_id, task.micro_batch, self.recipe.precision, self.device
        )
        with step_context(context):
            if task.kind == "F":
                self.forward(subnet, run, task.micro_batch, context)
            else:
                self.backward(subnet, run, task.micro_batch)
        subnet.left -= 1
        self.settle(subnet)

    def forward(self, subnet: Subnet, run: Run, j: int, context: StepContext) -> None:
        y = subnet.seq_id
        slots: dict[str, dict[str, Tensor]] = {}
        for group in subnet.read_by_run[run.index]:
            version = self.sync.reads(group, y)
            slots[group] = self.store.acquire(group, version)
        moved = dict.fromkeys(group for group, _ in subnet.moved_by_run[run.index])
        if not j:
            for group, use in subnet.moved_by_run[run.index]:
                if not use:
                    self.store.remember(group)
        names = self.built.groups.of_name

        def slot(name: str) -> Tensor:
            group = names.get(name)
            if group is None:
                return self.store.constant(name)
            if group.kind == "buffers":
                return self.store.buffers(group.name)[name]
            return slots[group.name][name]

        before = {group: self.word(group) for group in moved}
        flight = self.flights[y, j, run.index]
        values = bind_inputs(subnet.program, *as_call(self.input_of(subnet, j))) if run.reads_input else {}
        loss = (lambda output: self.loss(subnet, j, output)) if run.has_loss else None
        out, ctx = self.executor.forward(
            subnet.program, run, slot, flight.values, values, context, loss, self.at_step
        )
        flight.values.clear()
        flight.context = ctx
        self.log_run(subnet, run, j, "F", before)
        for group in moved:
            last_use = max(use for g, use in subnet.moved_by_run[run.index] if g == group)
            self.store.move(group, (y, j, last_use))
        if ctx.loss is not None:
            self.note_loss(subnet, j, ctx.loss)
        self.depart(subnet, run, j, out, ctx)
        events = [
            ("grad", y, j, run.index, value, reader)
            for value, readers in run.departures if value in ctx.roots
            for reader in readers
        ]  # fmt: skip
        self.ready.add(TaskId("B", y, j, run.index), events)

    def at_step(self, step: Step) -> None:
        self.where = step.name

    def depart(self, subnet: Subnet, run: Run, j: int, out: dict[int, Any], ctx: RunContext) -> None:
        """Send values to the runs that read them; one message per receiving run."""
        for reader in sorted({r for _, readers in run.departures for r in readers}):
            message = Message("F", subnet.seq_id, j, reader, run.index)
            tensors: list[Tensor | None] = []
            for value, readers in run.departures:
                if reader not in readers:
                    continue
                if isinstance(out[value], Tensor):
                    message.items.append((value, value in ctx.roots))
                    tensors.append(out[value])
                else:
                    message.facts[value] = out[value]
            self.send(subnet.runs[reader].worker, message, tensors)

    def backward(self, subnet: Subnet, run: Run, j: int) -> None:
        y = subnet.seq_id
        flight = self.flights.pop((y, j, run.index))
        assert flight.context is not None
        by_value: dict[int, list[Tensor]] = {}
        for value, parts in flight.grads.items():
            ordered = [parts[reader] for reader in sorted(parts, reverse=True)]
            by_value[value] = [grad for grad in ordered if grad is not None]
        grads = self.executor.backward(flight.context, by_value)
        self.log_run(subnet, run, j, "B", {})
        flight.context = None
        for source in sorted({a.source for a in run.arrivals}):
            message = Message("B", y, j, source, run.index)
            tensors: list[Tensor | None] = []
            for (value, reader), grad in grads.values.items():
                if any(a.value == value and a.source == source for a in run.arrivals):
                    message.items.append(((value, reader), False))
                    tensors.append(grad)
            if message.items:
                self.send(subnet.runs[source].worker, message, tensors)
        self.hand_in(subnet, run, j, grads)

    def hand_in(self, subnet: Subnet, run: Run, j: int, grads: Gradients) -> None:
        """Give the parameters' gradients to the workers that own their groups; one part per group."""
        parts: dict[str, dict[Use, Tensor | None]] = {
            group: {} for group in subnet.read_by_run[run.index] if group not in self.kept
        }
        for use, grad in grads.parameters.items():
            parts[self.built.groups.of_name[use[0]].name][use] = grad
        for group, part in parts.items():
            owner = subnet.owner[group]
            if owner == self.rank:
                self.fold(subnet, group, j, part)
            else:
                message = Message("P", subnet.seq_id, j, -1, run.index, [(use, False) for use in part], {"group": group})
                self.send(owner, message, list(part.values()))

    def send(self, worker: int, message: Message, tensors: list[Tensor | None]) -> None:
        if worker == self.rank:
            self.deliver(message, tensors)
        else:
            self.channel.send(worker, message, tensors)

    # -- gradients are complete

    def fold(self, subnet: Subnet, group: str, j: int, part: dict[Use, Tensor | None]) -> None:
        y = subnet.seq_id
        fold = self.folds.get((y, group))
        if fold is None:
            fold = self.folds[y, group] = GroupFold(self.m, subnet.users[group], self.own)
        if fold.add(j, part):
            del self.folds[y, group]
            self.complete(subnet, group, fold.total)

    def own(self, name: str, grad: Tensor) -> Tensor:
        like = self.host.home(name)
        copy = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=grad.device)
        return copy.copy_(grad)

    def complete(self, subnet: Subnet, group: str, grads: dict[str, Tensor]) -> None:
        y = subnet.seq_id
        if self.share.probing:
            self.launcher.send(("norm", y, group, fold_norms(grad_norms(grads))))
        if self.clip.kind == "layer":
            scale_(grads, factor(self.clip.limit, fold_norms(grad_norms(grads))))
        elif self.clip.kind == "global":
            norms: dict[str, float | None] = {name: None for name in self.built.groups.by_name[group].names}
            norms.update(grad_norms(grads))
            self.pending.setdefault(y, {})[group] = Pending(grads, {})
            for worker in sorted(set(subnet.owner.values()) - {self.rank}):
                self.channel.send(worker, Message("N", y, -1, -1, -1, [], norms), [])
            self.add_norms(y, norms)
            return
        self.step(subnet, group, grads)

    def add_norms(self, y: int, norms: dict[str, float | None]) -> None:
        """Once the norms of all gradients of a subnet are known, its groups can step."""
        subnet = self.subnets[y]
        known = self.norms.setdefault(y, {})
        known.update(norms)
        expected = sum(len(self.built.groups.by_name[g].names) for g in subnet.owner if g not in self.kept)
        if len(known) < expected:
            return
        del self.norms[y]
        by = factor(self.clip.limit, fold_norms({name: norm for name, norm in known.items() if norm is not None}))
        for group, held in self.pending.pop(y, {}).items():
            scale_(held.grads, by)
            self.step(subnet, group, held.grads)

    def step(self, subnet: Subnet, group: str, grads: dict[str, Tensor]) -> None:
        y = subnet.seq_id
        if group in self.host.delayed:
            self.host.keep_gradient(group, y, grads)
            self.delayed_due[group, y] = None
        else:
            self.store.step(group, grads, self.recipe.lr_of(y), y)
            self.log.parameters(self.first_step(subnet, group), group, y, -1, "U", "W", y)
        subnet.unfinished.discard(group)
        self.settle(subnet)

    def first_step(self, subnet: Subnet, group: str) -> str:
        for step in subnet.program.steps:
            if group in self.built.groups.of_step(step)[0]:
                return step.name
        raise AssertionError(f"no step reads {group}")

    def apply_delayed(self) -> None:
        """Apply the waiting gradients that this worker keeps, once it is their turn and their step is allowed.

        The gradient of x is applied as the step of x + K - 1, which must lie before the limit.
        """
        lag = self.recipe.sharing.lag
        limit = min(self.limit, self.halt)
        for group, x in list(self.delayed_due):
            if x + lag - 1 >= limit or self.store.version(group) != x - 1:
                continue
            grads = self.host.kept_gradient(group, x)
            assert grads is not None
            self.store.step(group, grads, self.recipe.lr_of(x + lag - 1), x)
            self.log.parameters(group, group, x, -1, "U", "W", x)
            del self.delayed_due[group, x]

    def settle(self, subnet: Subnet) -> None:
        """If this worker has nothing left to do for a subnet, forget it and move the low-water mark."""
        y = subnet.seq_id
        if not subnet.done or y not in self.subnets:
            return
        if y in self.norms or y in self.pending:
            return
        del self.subnets[y]
        self.batches.pop(y, None)
        self.source.drop(y)
        self.sync.forget(y)
        self.share.low[self.rank] = min(self.subnets, default=self.next_id)

    # -- data and loss

    def input_of(self, subnet: Subnet, j: int) -> Any:
        return self.batch_of(subnet)[j][0]

    def batch_of(self, subnet: Subnet) -> list[tuple[Any, Any]]:
        y = subnet.seq_id
        known = self.batches.get(y)
        if known is None:
            known = self.built.micro_batches(self.source.get(y))
            self.built.program(subnet.arch, spec_of(as_call(known[0][0])))  # a new shape must fit the program
            if self.device.type != "cpu":
                known = map_tree(
                    lambda t: t.to(self.device, non_blocking=True) if isinstance(t, Tensor) else t, known
                )
            self.batches[y] = known
        return known

    def loss(self, subnet: Subnet, j: int, output: Any) -> Tensor:
        self.where = "loss"
        batch = self.batch_of(subnet)
        if subnet.counts is None:
            subnet.counts = count_terms(self.built.loss_function, [y for _, y in batch], output)
        return self.built.loss_of(output, batch[j][1], subnet.counts, j)

    def note_loss(self, subnet: Subnet, j: int, loss: Tensor) -> None:
        value = float(loss.detach())
        subnet.losses[j] = value
        if not math.isfinite(value):
            self.launcher.send(("nan", subnet.seq_id, j, value))
            self.halt = min(self.halt, subnet.seq_id)
        if len(subnet.losses) == self.m:
            folded = fold_losses([subnet.losses[i] for i in range(self.m)])
            self.launcher.send(("loss", subnet.seq_id, subnet.arch, folded))

    # -- bookkeeping

    def log_run(self, subnet: Subnet, run: Run, j: int, phase: Phase, before: dict[str, Word]) -> None:
        """Write down which version of each group was there, read beside its bytes."""
        y = subnet.seq_id
        for step in run.steps:
            read, moved = self.built.groups.of_step(step)
            for group in read:
                seen = self.store.seen(group, self.sync.reads(group, y))
                self.log.parameters(step.name, group, y, j, phase, "R", seen)
            if phase == "F":
                for group in moved:
                    if group not in self.kept:
                        found = before.pop(group, (y, j, 0))  # the second use in a run finds what the first wrote
                        self.log.buffers(step.name, group, y, j, "F", "R", found[:2])
                        self.log.buffers(step.name, group, y, j, "F", "W", (y, j))

    def report_cut(self) -> None:
        """Everything below the limit is finished here: say so, once per limit."""
        limit = min(self.limit, self.halt)
        if self.reported == limit or self.next_id < self.limit:
            return
        if any(y < limit for y in self.subnets) or self.delayed_left(limit):
            return
        self.store.flush()
        self.log.flush()
        self.reported = int(limit)
        self.launcher.send(("cut", int(limit), self.busy))

    def delayed_left(self, limit: float) -> bool:
        return any(x + self.recipe.sharing.lag - 1 < limit for _, x in self.delayed_due)


def hear_out(worker: Worker) -> None:
    """Run, and turn the end of a peer into silence: the launcher knows, and will say what to do."""
    try:
        worker.run()
    except PeerGone as gone:
        if gone.peer == "launcher":
            raise
        deadline = time.monotonic() + 5.0
        while time.monotonic() < deadline:
            select.select([worker.launcher], [], [], 0.1)
            try:
                if any(kind == "stop" for kind, *_ in worker.launcher.receive()):
                    return
            except PeerGone:
                return


def explain(worker: Worker, error: BaseException) -> UserError | None:
    """A user's error for failures whose cause is known."""
    if isinstance(error, UserError):
        return error
    if names_nondeterminism(error):
        text = str(error)
        return UserError(
            f"step {worker.where!r} uses an operator without a deterministic kernel: {text.splitlines()[0][:200]}. "
            "Replace it, or set allow_nondeterministic = true in the recipe; such a run is not comparable"
        )
    return None
