"""`Tasks`: executes the forward and the backward of a micro-batch on a run, and sends on what comes out.

F:  values in ─▶ slots bound ─▶ steps ─▶ values out, one message per receiving run
B:  gradients in ─▶ steps back ─▶ gradients of values, to where they were made
                              └─▶ gradients of parameters, to the workers that own the groups
I and W: the two ends of B, as tasks of their own
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from sennit.executor.eager import EagerExecutor, Gradients, RunContext
from sennit.executor.graph_context import GraphContext
from sennit.program.cut import Run
from sennit.program.run import bind_inputs
from sennit.program.step import Step
from sennit.runtime.batches import Batches
from sennit.runtime.channel import Message
from sennit.runtime.executing import executor_for
from sennit.runtime.flight import Flight
from sennit.runtime.fold import Use
from sennit.runtime.handing import Handing
from sennit.runtime.reading import Reading
from sennit.runtime.retry import Kept, Retry
from sennit.runtime.share import DeviceStore, Share
from sennit.runtime.stepping import Stepping
from sennit.runtime.subnet import Subnet, Word
from sennit.runtime.told import Told
from sennit.runtime.waiting import Waiting
from sennit.schedule.order import Task
from sennit.schedule.ready import Ready
from sennit.space.model_space import as_call
from sennit.space.names import canonical_names
from sennit.supernet.context import StepContext, step_context
from sennit.trace.access import AccessLog, Phase

Send = Callable[[int, Message, list[Tensor | None]], None]


class Tasks:
    """What one worker executes.

    Args:
        send: to any worker, this one included.
        most: bytes from which on no further group's gradients go into a message (`Channel.most`).
        report: says something to the launcher.
    """

    def __init__(
        self, share: Share, store: DeviceStore, reading: Reading, ready: Ready, waiting: Waiting, batches: Batches,
        stepping: Stepping, log: AccessLog, send: Send, most: int, report: Callable[[Any], None], device: torch.device,
    ) -> None:  # fmt: skip
        self.most = most
        self.share, self.store, self.reading, self.ready, self.waiting = share, store, reading, ready, waiting
        self.batches, self.stepping, self.log, self.send, self.report = batches, stepping, log, send, report
        self.device, self.recipe, self.built = device, share.recipe, share.built
        modules = self.built.modules  # slots are bound into these
        eager = EagerExecutor(modules, canonical_names(modules), self.built.frozen_names, device)
        self.executor = executor_for(stepping.rank, share, eager)
        if share.parts.executor is not None:
            self.executor = share.parts.executor(self.executor)
        self.retry = Retry(self.make_room, device)
        self.flights: dict[tuple[int, int, int], Flight] = {}
        self.where = ""
        """The step being run, for messages."""
        self.task: Task | None = None
        """The task being run, for messages."""
        self.waited = 0.0
        """Seconds that it has waited for its loss."""

    def flight(self, seq_id: int, micro_batch: int, run: int) -> Flight:
        return self.flights.setdefault((seq_id, micro_batch, run), Flight())

    def make_room(self) -> None:
        """The device is full."""
        gc.collect()  # garbage may hold tensors, and is looked for seldom
        self.stepping.settle()
        self.store.relieve()
        self.executor.relieve()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def execute(self, task: Task, subnet: Subnet) -> None:
        self.task, self.waited = task, 0.0
        run = subnet.runs[task.run]
        with step_context(self.context(task.seq_id, task.micro_batch)):
            if task.kind == "F":
                self.forward(subnet, run, task.micro_batch)
            elif task.kind == "W":
                self.weight(subnet, run, task.micro_batch)
            else:
                self.backward(subnet, run, task.micro_batch, split=task.kind == "I")

    def context(self, seq_id: int, micro_batch: int) -> StepContext:
        return StepContext.of(self.recipe.seed, seq_id, micro_batch, self.recipe.precision, self.device)

    # -- forward

    def forward(self, subnet: Subnet, run: Run, j: int) -> None:
        y = subnet.seq_id
        slot = self.retry.found(lambda: self.slots(subnet, run, j))
        before = {group: self.waiting.word(group) for group, _ in subnet.first_moves(run)}
        if not j:
            for group, use in subnet.first_moves(run):
                if not use:
                    self.store.remember(group)
        flight = self.flight(y, j, run.index)
        real = self.share.waits is None
        inputs = self.batches.of(subnet)[j][0] if run.reads_input and real else None
        values = bind_inputs(subnet.program, *as_call(inputs)) if run.reads_input and real else {}
        flight.kept = kept = Kept(slot, flight.values, values, self.written(subnet, run))
        out, ctx = self.retry(lambda: self.computed(subnet, run, j, kept, slot), kept.put_back)
        flight.values = {}
        flight.context = ctx
        self.depart(subnet, run, j, out, ctx)  # others wait for it, nobody for the log
        self.write_log(subnet, run, j, "F", before)
        for group, use in subnet.last_moves(run):
            with self.share.publishing(group, y, (y, j, use)):
                self.store.move(group, (y, j, use))
        if ctx.loss is not None:
            flight.loss = Told(ctx.loss.detach())
            self.note_loss(subnet, j, flight)
        awaited = [(v, r) for v, readers in run.departures if v in ctx.roots for r in readers]
        kind = "I" if self.share.placement.split else "B"
        self.ready.add(Task(kind, y, j, run.index), [("grad", y, j, run.index, v, r) for v, r in awaited])

    def written(self, subnet: Subnet, run: Run) -> dict[str, Tensor]:
        """Copies of the buffers that a run writes."""
        if self.share.waits is not None:
            return {}
        return {
            name: tensor.clone()
            for group, _ in subnet.first_moves(run)
            for name, tensor in self.store.buffers(group).items()
        }

    def computed(self, subnet: Subnet, run: Run, j: int, kept: Kept, slot: Callable[[str], Tensor]) -> Any:
        """What a forward gives, and the context for its backward."""
        context = self.context(subnet.seq_id, j)
        loss = self.batches.loss_call(subnet, j, self.loss, context) if run.has_loss else None
        return self.executor.forward(subnet.program, run, slot, kept.arrivals, kept.inputs, context, loss, self.at_step)

    def slots(self, subnet: Subnet, run: Run, j: int) -> Callable[[str], Tensor]:
        """Finds the tensor of a parameter or buffer."""
        if self.device.type != "cpu" and len(subnet.workers) > 1:
            for group in subnet.read_by_run[run.index]:
                assert subnet.owner[group] == subnet.worker(run.index, j) or group in self.share.wandering, group
        held = {group: self.reading.acquire(group, subnet.seq_id) for group in subnet.read_by_run[run.index]}
        names = self.built.groups.of_name

        def slot(name: str) -> Tensor:
            group = names.get(name)
            if group is None:
                return self.store.constant(name)
            if group.kind == "buffers":
                return self.store.buffers(group.name)[name]
            return held[group.name][name]

        return slot

    def at_step(self, step: Step) -> None:
        self.where = step.name

    def loss(self, subnet: Subnet, j: int, output: Any) -> Tensor:
        self.where = "loss"
        return self.batches.loss(subnet, j, output)

    def note_loss(self, subnet: Subnet, j: int, flight: Flight, *, wait: bool = False) -> bool:
        """Report a loss that the device has told. Returns whether it is no reason to stop."""
        if flight.loss is None or not (wait or flight.loss.there()):
            return True
        since = time.monotonic()
        (value,) = flight.loss.numbers()
        self.waited = time.monotonic() - since
        flight.loss = None
        subnet.losses[j] = value
        if not math.isfinite(value):
            self.report(("nan", subnet.seq_id, j, value, [i for i in range(j) if i not in subnet.losses]))
        if subnet.all_losses:
            self.report(("loss", subnet.seq_id, subnet.arch, subnet.losses))
        return math.isfinite(value)

    def depart(self, subnet: Subnet, run: Run, j: int, out: dict[int, Any], ctx: RunContext | GraphContext) -> None:
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
            self.send(subnet.worker(reader, j), message, tensors)

    # -- backward

    def backward(self, subnet: Subnet, run: Run, j: int, split: bool) -> None:
        """The whole backward, or the part that others wait for."""
        flight = self.flights.pop((subnet.seq_id, j, run.index))
        by_value: dict[int, list[Tensor]] = {}
        for value, parts in flight.grads.items():
            ordered = [parts[reader] for reader in sorted(parts, reverse=True)]
            by_value[value] = [grad for grad in ordered if grad is not None]
        self.where = f"{run.steps[-1].name} (backward)"
        back = self.executor.backward_input if split else self.executor.backward
        rule = self.recipe.sync_rule
        # under asp:none weights have changed since the forward, which would not give again what it gave
        retry = self.retry if rule.kind != "asp" or rule.stash else self.retry.once
        handing = self.handing(subnet, run, j)

        def backward() -> Gradients:
            handing.begin()
            ctx = self.graph(subnet, run, j, flight)
            if not split and isinstance(ctx, GraphContext):
                ctx.give = handing.take
            return back(ctx, by_value)

        grads = retry(backward, flight.drop)
        ctx = flight.context
        if not self.note_loss(subnet, j, flight, wait=True):
            return  # nothing of this subnet may be trained; no later one comes in, and this one is not finished
        for source in sorted({a.source for a in run.arrivals}):
            message = Message("B", subnet.seq_id, j, source, run.index)
            tensors: list[Tensor | None] = []
            from_there = {a.value for a in run.arrivals if a.source == source}
            for (value, reader), grad in grads.values.items():
                if value in from_there:
                    message.items.append(((value, reader), False))
                    tensors.append(grad)
            if message.items:
                self.send(subnet.worker(source, j), message, tensors)
        self.write_log(subnet, run, j, "B", {})
        if split:
            self.ready.add(Task("W", subnet.seq_id, j, run.index), [])
        if split and ctx is not None and ctx.joints:
            later = Flight(context=ctx, found=grads.parameters, kept=flight.kept, given=by_value)
            self.flights[subnet.seq_id, j, run.index] = later
        else:
            self.hand_in(subnet, run, j, handing, grads.parameters)

    def weight(self, subnet: Subnet, run: Run, j: int) -> None:
        """Gradients of weights that the backward has left out; nothing if it has left out none."""
        flight = self.flights.pop((subnet.seq_id, j, run.index), None)
        if flight is None:
            return
        assert flight.found is not None
        self.where = f"{run.steps[-1].name} (gradients of weights)"

        handing = self.handing(subnet, run, j)

        def left_out() -> dict[Use, Tensor | None]:
            handing.begin()
            again, found = flight.context is None, {}
            ctx = self.graph(subnet, run, j, flight)
            if again:  # it may leave out less than the first time
                found = self.executor.backward_input(ctx, flight.given).parameters
            if isinstance(ctx, GraphContext):
                ctx.give = handing.take
            return {**found, **self.executor.backward_weight(ctx)}

        self.hand_in(subnet, run, j, handing, {**flight.found, **self.retry(left_out, flight.drop)})

    def graph(self, subnet: Subnet, run: Run, j: int, flight: Flight) -> Any:
        """What the forward has kept; if a failed backward has taken it apart, the forward runs again."""
        if flight.context is None:
            assert flight.kept is not None
            flight.context = self.computed(subnet, run, j, flight.kept, flight.kept.scratch())[1]
        return flight.context

    def handing(self, subnet: Subnet, run: Run, j: int) -> Handing:
        return Handing(subnet, run, j, self.stepping, self.share.frozen)

    def hand_in(self, subnet: Subnet, run: Run, j: int, handing: Handing, grads: dict[Use, Tensor | None]) -> None:
        """Give the parameters' gradients to the workers that own their groups; one part per group."""
        self.store.unpin(subnet.read_by_run[run.index], subnet.seq_id)
        self.retry(lambda: handing.end(grads), lambda: None)  # what has been added stays
        parts = handing.elsewhere()
        for groups in together(parts, subnet.owner, self.most):
            held = {use: grad for group in groups for use, grad in parts[group].items()}
            uses = [(use, False) for use in held]
            message = Message("P", subnet.seq_id, j, -1, run.index, uses, {"groups": groups})
            self.send(subnet.owner[groups[0]], message, list(held.values()))
        handing.complete()

    # -- the access log

    def write_log(self, subnet: Subnet, run: Run, j: int, phase: Phase, before: dict[str, Word]) -> None:
        """Write down which version of each group was there, read beside its bytes."""
        y = subnet.seq_id
        seen = {group: self.reading.seen(group, y, j, phase) for group in subnet.read_by_run[run.index]}
        of_step = self.built.groups.of_step
        self.log.reads(((s.name, group, seen[group]) for s in run.steps for group in of_step(s)[0]), y, j, phase)
        if phase == "F":
            for step in run.steps:
                for group in of_step(step)[1]:
                    if group not in self.share.frozen:
                        found = before.pop(group, (y, j, 0))  # the second use in a run finds what the first wrote
                        self.log.buffers(step.name, group, y, j, "F", "R", found[:2])
                        self.log.buffers(step.name, group, y, j, "F", "W", (y, j))


def together(parts: Mapping[str, Mapping[Use, Tensor | None]], owner: Mapping[str, int], most: int) -> list[list[str]]:
    """Groups whose gradients go in one message: of one owner, in their order, and not too many bytes."""
    messages: list[list[str]] = []
    filling: dict[int, tuple[list[str], int]] = {}
    for group, part in parts.items():
        held, size = filling.get(owner[group], ([], most))
        if size >= most:
            held, size = [], 0
            messages.append(held)
        held.append(group)
        filling[owner[group]] = held, size + sum(grad.nbytes for grad in part.values() if grad is not None)
    return messages
