"""`GraphExecutor`: layers that are seen again and again are replayed from CUDA graphs; the bits are those of
`EagerExecutor`.

    F   per layer one replay of its forward, nothing kept but its input
    B   per layer, last one first, one replay of recompute + backward; of the backward alone, if an instance was free
        that keeps what the forward makes

Every step is a run of its own here: gradients of a value are added up over its readers, last reader first, as the
contract says and as `EagerExecutor` does between runs. A graph is captured per kind of layer and shape, once
these have been seen `AFTER` times, and is used only if outputs and gradients have the bits of an eager run. Steps that
are no modules, layers that cannot be captured and shapes that are rare run eagerly, and are counted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from sennit.executor.capture import Capturing, NotCapturable
from sennit.executor.eager import EagerExecutor, Gradients, Received, summed
from sennit.executor.graph_context import GraphContext, computed_again
from sennit.executor.instances import Instances
from sennit.executor.kept_graph import KeptGraph, Weights
from sennit.executor.kinds import Kinds, call_of, shape_of
from sennit.executor.layer_call import Layer, LayerCall
from sennit.executor.layer_graph import LayerGraph
from sennit.executor.loss_graph import LossCall, LossGraphs
from sennit.executor.played import Played
from sennit.executor.proof import proven
from sennit.executor.staging import Staging
from sennit.program.cut import Run
from sennit.program.run import Values, output_of
from sennit.program.sameness import Unknown
from sennit.program.step import Program, Step
from sennit.program.template import Ref
from sennit.supernet.context import StepContext

AFTER = 2
"""How often a kind is seen at a shape before it is captured."""


AnyGraph = TypeVar("AnyGraph", LayerGraph, KeptGraph)


class GraphExecutor:
    """Executes runs on one device.

    Args:
        eager: runs what is not replayed, and what is captured.
        device: how to capture.
        after: how often a kind must be seen at a shape.
        instances: of graphs that keep what their forward made; None: all compute it again.
        splits: the backward comes in two parts, I and W.
    """

    def __init__(
        self, eager: EagerExecutor, device: Capturing, after: int = AFTER, instances: Instances | None = None,
        splits: bool = False,
    ) -> None:  # fmt: skip
        self.eager, self.device, self.after, self.instances, self.splits = eager, device, after, instances, splits
        self.staging = Staging(eager.device)
        self.kinds = Kinds(eager)
        self.graphs: dict[Hashable, LayerGraph | None] = {}
        """By kind and shape; None for what stays eager."""
        self.known: dict[Hashable, LayerGraph | None] = {}
        """By name of the step and shape, so that a kind is worked out once for a layer."""
        self.seen: Counter[Hashable] = Counter()
        self.counts: Counter[str] = Counter()
        self.capturing_s = 0.0
        self.refused: dict[str, str] = {}
        """Why layers stay eager, or do not keep what they make, by the first step for each reason."""
        self.losses = LossGraphs(device, self.staging, after, self.refused)

    # -- forward

    def forward(
        self, program: Program, run: Run, slot: Callable[[str], Tensor], arrivals: Received, inputs: Values,
        context: StepContext, loss: Callable[[Any], Tensor] | None, on_step: Callable[[Step], None],
    ) -> tuple[dict[int, Any], GraphContext]:  # fmt: skip
        """As `EagerExecutor.forward`."""
        values: dict[int, Any] = dict(inputs)
        wanted: dict[int, bool] = {}
        for value, (payload, grads) in arrivals.items():
            values[value], wanted[value] = payload, grads
        ctx = GraphContext(program, run, wanted)
        try:
            for step in run.steps:
                on_step(step)
                if step.kind == "shape":
                    values[step.writes[0]] = tuple(values[step.reads[0]].shape)
                else:
                    self.step(program, step, slot, values, context, ctx)
            if run.has_loss:
                assert loss is not None
                self.loss(program, values, wanted, loss, ctx)
            departures: dict[int, Any] = {}
            for value, _ in run.departures:
                departures[value] = made = ctx.to_keep(values[value])
                if wanted.get(value):
                    ctx.roots[value] = made
        except BaseException:
            ctx.drop()
            raise
        return departures, ctx

    def step(
        self, program: Program, step: Step, slot: Callable[[str], Tensor], values: Values, context: StepContext,
        ctx: GraphContext,
    ) -> None:  # fmt: skip
        """Replay a step if it can be, else run it."""
        wanted = ctx.wanted
        if step.kind == "module":
            names = self.kinds.holds_of(step)

            def layer() -> Layer:
                held, reads = [slot(name) for name in names], [values[n] for n in step.reads]
                grads = tuple(wanted.get(n, False) for n in step.reads)
                return Layer(program, step, names, held, reads, grads, context)

            graph: LayerCall | None = self.graph(program, step, values, wanted, layer)
            if isinstance(graph, LayerGraph) and graph.backward is not None and self.instances is not None:
                graph = self.keeping(self.instances, graph, (context.seq_id, step.name), layer)
            if graph is not None:
                flats = [parcel.of(slot(names[i])) for parcel, i in zip(graph.parcels, graph.firsts, strict=True)]
                played = graph.play(flats, [values[n] for n in step.reads], context, step)
                ctx.done.append((step, played))
                ctx.lent |= graph.lends
                values.update(zip(step.writes, played.outs, strict=True))
                wanted.update(zip(step.writes, graph.out_wanted, strict=True))
                self.counts["replayed steps"] += 1
                return
        self.counts["eager steps"] += 1
        alone = self.eager.alone(program, step, slot, values, wanted, context)
        ctx.done.append((step, alone))
        wanted.update((n, n in alone.roots) for n in step.writes)

    def loss(
        self, program: Program, values: Values, wanted: Mapping[int, bool], loss: Callable[[Any], Tensor],
        ctx: GraphContext,
    ) -> None:  # fmt: skip
        """Replay the loss if it can be, else compute it."""
        if isinstance(loss, LossCall) and type(program.output) is Ref:
            output = values[program.outputs[0]]
            graph = self.losses.of(output, wanted.get(program.outputs[0], False), loss)
            if graph is not None:
                self.counts["replayed steps"] += 1
                ctx.loss, ctx.loss_gradient = graph.play(output, loss)
                return
        self.counts["eager steps"] += 1
        for n in program.outputs:
            values[n] = ctx.to_keep(values[n])  # it may be a function of the user's, which may keep it
            if wanted.get(n):
                values[n] = ctx.loss_leaves[n] = values[n].detach().requires_grad_()
        ctx.loss = loss(output_of(program, values))

    # -- graphs

    def graph(
        self, program: Program, step: Step, values: Values, wanted: Mapping[int, bool], layer: Callable[[], Layer]
    ) -> LayerGraph | None:  # fmt: skip
        """What replays a step at the shapes of what it reads, captured if it is time; None: run it eagerly."""
        shapes = tuple(shape_of(values[n], wanted.get(n, False)) for n in step.reads)
        tied = tuple(name in program.tied for name in self.kinds.holds_of(step)) if program.tied else ()
        key = (step.name, call_of(step), shapes, tied)
        if key not in self.known:
            found = layer()
            try:
                full = (*self.kinds.of(step, found.held), shapes, tied, found.context.precision)
            except Unknown as reason:
                self.refused.setdefault(str(reason), step.name)
                self.known[key] = None
                return None
            if full not in self.graphs:
                self.seen[full] += 1
                if self.seen[full] <= self.after:
                    return None
                self.graphs[full] = self.captured(LayerGraph, found)
            self.known[key] = self.graphs[full]
        return self.known[key]

    def keeping(
        self, instances: Instances, graph: LayerGraph, of: tuple[int | None, str], layer: Callable[[], Layer]
    ) -> LayerCall:  # fmt: skip
        """An instance that keeps what the forward makes, else `graph` itself, which computes it again."""

        def make(weights: Weights, like: KeptGraph | None) -> KeptGraph | None:
            way = partial(KeptGraph, weights=weights, splits=self.splits, like=like)
            return self.captured(way, layer(), known=like is not None)

        found = instances.take(graph, of, self.eager.device, make)
        self.counts["kept steps"] += found is not None
        return found or graph

    def captured(self, way: Callable[..., AnyGraph], layer: Layer, known: bool = False) -> AnyGraph | None:
        """Capture a step and compare it with an eager run; None if it is not to be replayed in this way.

        Args:
            known: a graph of the same kind, captured in the same way on other memory, has been compared.
        """
        before, began = self.kinds.of_module(layer.step), time.perf_counter()
        try:
            graph = way(self.device, self.staging, self.eager, layer)
            if self.kinds.of_module(layer.step) != before:
                raise NotCapturable("its forward changes attributes of its modules")
            if not known and not proven(graph, self.eager, layer):
                raise NotCapturable("a replay gives other bits")
        except NotCapturable as reason:
            self.refused.setdefault(str(reason), layer.step.name)
            return None
        finally:
            self.capturing_s += time.perf_counter() - began
        self.counts["graphs"] += 1
        return graph

    # -- backward

    def backward(self, ctx: GraphContext, grads: Mapping[int, list[Tensor]], split: bool = False) -> Gradients:
        """As `EagerExecutor.backward`."""
        parts: dict[int, list[Tensor]] = {value: list(found) for value, found in grads.items()}
        found = Gradients(
            {(a.value, reader): None for a in ctx.run.arrivals if ctx.wanted[a.value] for reader in a.readers}, {}
        )

        def give(value: int, reader: int, grad: Tensor | None) -> None:
            if (value, reader) in found.values:
                found.values[value, reader] = ctx.to_keep(grad)
            elif grad is not None:
                parts.setdefault(value, []).append(grad)

        if ctx.loss_gradient is not None:
            give(ctx.program.outputs[0], len(ctx.program.steps), ctx.loss_gradient)
        elif ctx.loss is not None and ctx.loss.requires_grad and ctx.loss_leaves:
            leaves = ctx.loss_leaves
            got = torch.autograd.grad([ctx.loss], [*leaves.values()], [torch.ones_like(ctx.loss)], allow_unused=True)
            for value, grad in zip(leaves, got, strict=True):
                give(value, len(ctx.program.steps), grad)
        try:
            for step, how in reversed(ctx.done):
                if isinstance(how, Played):
                    given = [
                        summed(p) if (p := parts.get(n)) else None
                        for n, w in zip(step.writes, how.graph.out_wanted, strict=True)
                        if w
                    ]
                    part = self._replayed(ctx, step, how, given, split)
                    parameters = part.parameters
                else:
                    part = self.eager.backward(how, {n: parts.get(n, []) for n in how.roots})
                    parameters = {use: ctx.to_keep(grad) for use, grad in part.parameters.items()}
                if ctx.give is None:
                    found.parameters.update(parameters)
                else:
                    ctx.give(step, parameters)
                for (value, reader), grad in part.values.items():
                    give(value, reader, grad)
        except BaseException:
            ctx.drop()
            raise
        ctx.give_back()  # what they lend is good until the next forward
        return found

    def _replayed(
        self, ctx: GraphContext, step: Step, played: Played, given: Sequence[Tensor | None], split: bool
    ) -> Gradients:  # fmt: skip
        """The backward of a step that was replayed, or what others wait for."""
        names, graph = self.kinds.holds_of(step), played.graph
        there = [grad for grad in given if grad is not None]
        if not there or len(there) < len(given):
            return computed_again(self.eager, ctx, step, played, names, given)
        if split and isinstance(graph, KeptGraph) and graph.splits and graph.trains:
            ctx.joints.append((step, played))
            return Gradients(graph.values(step, graph.play_input(played, there)), {})
        return graph.named(step, names, ctx.program.tied, graph.play_back(played, there))

    def counters(self) -> dict[str, float]:
        """Steps replayed and run since the last call, graphs captured, and seconds of the host for that; of steps
        replayed, how many kept what they made."""
        names = ("replayed steps", "eager steps", "graphs", *(("kept steps",) if self.instances is not None else ()))
        found = {name: float(self.counts[name]) for name in names}
        if self.instances is not None:
            found["kept by graphs, bytes"] = float(self.instances.nbytes)
        found["capturing, s"], self.capturing_s = self.capturing_s, 0.0
        self.counts.clear()
        return found

    def relieve(self) -> None:
        """The device is full: what is kept for later goes."""
        if self.instances is not None:
            self.instances.relieve()

    # -- split backward

    def backward_input(self, ctx: GraphContext, grads: Mapping[int, list[Tensor]]) -> Gradients:
        """Instances leave gradients of parameters for later; what is computed again, or eagerly, leaves nothing."""
        return self.backward(ctx, grads, split=True)

    def backward_weight(self, ctx: GraphContext) -> dict[tuple[str, int], Tensor | None]:
        """What `backward_input` has left out."""
        found: dict[tuple[str, int], Tensor | None] = {}
        try:
            for step, played in ctx.joints:
                assert isinstance(played.graph, KeptGraph)
                names, back = self.kinds.holds_of(step), played.graph.play_weight(played)
                parameters = played.graph.parameters(step, names, ctx.program.tied, back)
                if ctx.give is None:
                    found.update(parameters)
                else:
                    ctx.give(step, parameters)
        finally:
            ctx.drop()
        return found
