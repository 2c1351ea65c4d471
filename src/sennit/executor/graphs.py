"""`GraphExecutor`: layers that are seen again and again are replayed from CUDA graphs; the bits are those of
`EagerExecutor`.

    F   per layer one replay of its forward, nothing kept but its input
    B   per layer, last one first, one replay of recompute + backward

Every step is a run of its own here: gradients of a value are added up over its readers, last reader first, as the
contract says and as `EagerExecutor` does between runs. A graph is captured per kind of layer and shape, once
these have been seen `AFTER` times, and is used only if outputs and gradients have the bits of an eager run. Steps that
are no modules, layers that cannot be captured and shapes that are rare run eagerly, and are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sennit.executor.capture import Capturing, NotCapturable
from sennit.executor.eager import EagerExecutor, Gradients, Received, RunContext, summed
from sennit.executor.layer_graph import Found, LayerGraph, Played
from sennit.executor.loss_graph import LossCall, LossGraph
from sennit.executor.staging import Staging
from sennit.memory.parcel import parcels
from sennit.program.cut import Run
from sennit.program.run import Values, output_of
from sennit.program.sameness import Unknown, same_call, same_module
from sennit.program.step import Program, Step
from sennit.program.template import Ref
from sennit.supernet.bits import same_bits
from sennit.supernet.context import StepContext

AFTER = 2
"""How often a kind is seen at a shape before it is captured."""


@dataclass
class GraphContext:
    """What the backward of a run needs. Tasks look at `roots`, `loss` and `joints`, as of a `RunContext`.

    Attributes:
        wanted: whether a gradient goes back to a value.
        roots: values whose gradient is wanted, of those that leave the run.
        loss_leaves: outputs as the loss read them, if it was computed eagerly.
        loss_gradient: of the output, if the loss was replayed.
        done: of each step that computes, how it ran, in order.
    """

    program: Program
    run: Run
    wanted: dict[int, bool] = field(default_factory=dict[int, bool])
    roots: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    loss: Tensor | None = None
    loss_leaves: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    loss_gradient: Tensor | None = None
    joints: list[Any] = field(default_factory=list[Any])
    done: list[tuple[Step, Played | RunContext]] = field(default_factory=list[tuple[Step, Played | RunContext]])


Give = Callable[[int, int, Tensor | None], None]
"""Takes the gradient of a value from a step that read it."""


class GraphExecutor:
    """Executes runs on one device.

    Args:
        eager: runs what is not replayed, and what is captured.
        device: how to capture.
        after: how often a kind must be seen at a shape.
    """

    def __init__(self, eager: EagerExecutor, device: Capturing, after: int = AFTER) -> None:
        self.eager, self.device, self.after = eager, device, after
        self.staging = Staging(eager.device)
        self.graphs: dict[Hashable, LayerGraph | None] = {}
        """By kind and shape; None for what stays eager."""
        self.losses: dict[Hashable, LossGraph | None] = {}
        """By shapes of output and target."""
        self.known: dict[Hashable, LayerGraph | None] = {}
        """By name of the step and shape, so that a kind is worked out once for a layer."""
        self.kinds: dict[Hashable, tuple[Hashable, ...]] = {}
        self.holds: dict[str, tuple[str, ...]] = {}
        self.seen: Counter[Hashable] = Counter()
        self.counts: Counter[str] = Counter()
        self.refused: dict[str, str] = {}
        """Why layers stay eager, by the first step for each reason."""

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
        for step in run.steps:
            on_step(step)
            if step.kind == "shape":
                values[step.writes[0]] = tuple(values[step.reads[0]].shape)
                continue
            self.step(program, step, slot, values, context, ctx)
        if run.has_loss:
            assert loss is not None
            self.loss(program, values, wanted, loss, ctx)
        departures: dict[int, Any] = {}
        for value, _ in run.departures:
            departures[value] = made = values[value]
            if wanted.get(value):
                ctx.roots[value] = made
        return departures, ctx

    def step(
        self, program: Program, step: Step, slot: Callable[[str], Tensor], values: Values, context: StepContext,
        ctx: GraphContext,
    ) -> None:  # fmt: skip
        """Replay a step if it can be, else run it."""
        if step.kind == "module":
            graph = self.graph(program, step, slot, values, ctx.wanted, context)
            if graph is not None:
                self.counts["replayed steps"] += 1
                names = self.holds_of(step)
                flats = [parcel.of(slot(names[i])) for parcel, i in zip(graph.parcels, graph.firsts, strict=True)]
                ctx.done.append((step, graph.play(flats, [values[n] for n in step.reads], context, step)))
                values.update(zip(step.writes, graph.given_out(), strict=True))
                ctx.wanted.update(zip(step.writes, graph.out_wanted, strict=True))
                return
        self.counts["eager steps"] += 1
        alone = self.eager.alone(program, step, slot, values, ctx.wanted, context)
        ctx.done.append((step, alone))
        ctx.wanted.update((n, n in alone.roots) for n in step.writes)

    def loss(
        self, program: Program, values: Values, wanted: Mapping[int, bool], loss: Callable[[Any], Tensor],
        ctx: GraphContext,
    ) -> None:  # fmt: skip
        """Replay the loss if it can be, else compute it."""
        graph = self.loss_graph(program, values, wanted, loss) if isinstance(loss, LossCall) else None
        if graph is not None and isinstance(loss, LossCall):
            self.counts["replayed steps"] += 1
            ctx.loss, ctx.loss_gradient = graph.play(values[program.outputs[0]], loss)
            return
        self.counts["eager steps"] += 1
        for n in program.outputs:
            if wanted.get(n):
                values[n] = ctx.loss_leaves[n] = values[n].detach().requires_grad_()
        ctx.loss = loss(output_of(program, values))

    def loss_graph(
        self, program: Program, values: Values, wanted: Mapping[int, bool], loss: LossCall
    ) -> LossGraph | None:  # fmt: skip
        """The loss's graph at these shapes, captured if it is time."""
        function, target = loss.function, loss.target
        if function is None or type(program.output) is not Ref or not isinstance(target, Tensor):
            return None
        output, grad = values[program.outputs[0]], wanted.get(program.outputs[0], False)
        key = (_shape(output, grad), _shape(target, False))
        if key not in self.losses:
            self.seen[key] += 1
            if self.seen[key] <= self.after:
                return None
            self.losses[key] = None
            try:
                graph = LossGraph(self.device, self.staging, function, output, target, grad)
            except NotCapturable as reason:
                self.refused.setdefault(str(reason), "loss")
                return None
            leaf = output.detach().requires_grad_(grad)
            eager = loss(leaf)
            back = torch.autograd.grad([eager], [leaf], [torch.ones_like(eager)])[0] if grad else None
            if same_bits(graph.play(output, loss), (eager.detach(), back)):
                self.losses[key] = graph
            else:
                self.refused.setdefault("a replay gives other bits", "loss")
        return self.losses[key]

    def holds_of(self, step: Step) -> tuple[str, ...]:
        """Names of the tensors that a module holds, each once, in the order of its tables."""
        names = self.holds.get(step.target)
        if names is None:
            names = self.holds[step.target] = tuple(dict.fromkeys(self.eager.held_by(step.target)))
        return names

    # -- graphs

    def graph(
        self, program: Program, step: Step, slot: Callable[[str], Tensor], values: Values, wanted: Mapping[int, bool],
        context: StepContext,
    ) -> LayerGraph | None:  # fmt: skip
        """The graph of a step at the shapes of what it reads, captured if it is time; None: run it eagerly."""
        shapes = tuple(_shape(values[n], wanted.get(n, False)) for n in step.reads)
        tied = tuple(name in program.tied for name in self.holds_of(step)) if program.tied else ()
        key = (step.name, _call(step), shapes, tied)
        if key in self.known:
            return self.known[key]
        held = [slot(name) for name in self.holds_of(step)]
        try:
            full = (*self.whole_kind(step, held), shapes, tied, context.precision)
        except Unknown as reason:
            self.refused.setdefault(str(reason), step.name)
            self.known[key] = None
            return None
        if full not in self.graphs:
            self.seen[full] += 1
            if self.seen[full] <= self.after:
                return None
            self.graphs[full] = self.captured(program, step, held, values, wanted, context)
        found = self.known[key] = self.graphs[full]
        return found

    def whole_kind(self, step: Step, held: Sequence[Tensor]) -> tuple[Hashable, ...]:
        """Everything but shapes; looked at once per layer and way to call it, since that takes as long as ten replays.

        Raises:
            Unknown: that cannot be told.
        """
        trains = tuple(tensor.requires_grad for tensor in held)
        key = (step.name, _call(step), trains)
        found = self.kinds.get(key)
        if found is None:
            found = self.kinds[key] = (self.kind(step), same_call(step), _layout(held))
        return found

    def kind(self, step: Step) -> Hashable:
        """What the module of a step computes, apart from the tensors that it holds.

        Raises:
            Unknown: that cannot be told.
        """
        names = self.holds_of(step)
        place = {name: i for i, name in enumerate(names)}
        pattern = tuple(place[name] for name in self.eager.held_by(step.target))
        written = tuple(place[name] for name in step.written if name in place)
        kept = tuple(name in self.eager.kept for name in names)
        return same_module(self.eager.modules[step.target]), pattern, written, kept

    def captured(
        self, program: Program, step: Step, held: Sequence[Tensor], values: Values, wanted: Mapping[int, bool],
        context: StepContext,
    ) -> LayerGraph | None:  # fmt: skip
        """Capture a step and compare it with an eager run; None if it is to stay eager."""
        reads = [values[n] for n in step.reads]
        grads = [wanted.get(n, False) for n in step.reads]
        names = self.holds_of(step)
        before = self.kind(step)
        try:
            graph = LayerGraph(self.device, self.staging, self.eager, program, step, names, held, reads, grads, context)
            if self.kind(step) != before:
                raise NotCapturable("its forward changes attributes of its modules")
            if not self.proven(graph, program, step, held, values, wanted, context):
                raise NotCapturable("a replay gives other bits")
        except NotCapturable as reason:
            self.refused.setdefault(str(reason), step.name)
            return None
        self.counts["graphs"] += 1
        return graph

    def proven(
        self, graph: LayerGraph, program: Program, step: Step, held: Sequence[Tensor], values: Values,
        wanted: Mapping[int, bool], context: StepContext,
    ) -> bool:  # fmt: skip
        """Whether a replay gives the bits of an eager run: outputs, gradients, and the buffers that are written."""
        ours, theirs = graph.copies(held), graph.copies(held)
        names = self.holds_of(step)
        own: dict[int, Any] = {n: values[n] for n in step.reads}
        ctx = self.eager.alone(program, step, dict(zip(names, theirs, strict=True)).__getitem__, own, wanted, context)
        played = graph.play(graph.lying(ours), [values[n] for n in step.reads], context, step)
        made = graph.given_out()
        if not same_bits((made, ours), ([own[n] for n in step.writes], theirs)):
            return False
        if tuple(n in ctx.roots for n in step.writes) != graph.out_wanted:
            return False
        if graph.backward is None:
            return True
        given = {n: torch.cos(own[n].float()).to(own[n].dtype) for n in ctx.roots}  # any dense numbers
        there = self.eager.backward(ctx, {n: [grad] for n, grad in given.items()})
        here = Gradients({}, {})
        self._hand_over(
            program, step, graph.play_back(played, list(given.values())), played,
            lambda value, reader, grad: here.values.update({(value, reader): grad}), here,
        )  # fmt: skip
        return _same(here.values, there.values) and _same(here.parameters, there.parameters)

    # -- backward

    def backward(self, ctx: GraphContext, grads: Mapping[int, list[Tensor]]) -> Gradients:
        """As `EagerExecutor.backward`."""
        parts: dict[int, list[Tensor]] = {value: list(found) for value, found in grads.items()}
        found = Gradients(
            {(a.value, reader): None for a in ctx.run.arrivals if ctx.wanted[a.value] for reader in a.readers}, {}
        )

        def give(value: int, reader: int, grad: Tensor | None) -> None:
            if (value, reader) in found.values:
                found.values[value, reader] = grad
            elif grad is not None:
                parts.setdefault(value, []).append(grad)

        if ctx.loss_gradient is not None:
            give(ctx.program.outputs[0], len(ctx.program.steps), ctx.loss_gradient)
        elif ctx.loss is not None and ctx.loss.requires_grad and ctx.loss_leaves:
            leaves = ctx.loss_leaves
            got = torch.autograd.grad([ctx.loss], [*leaves.values()], [torch.ones_like(ctx.loss)], allow_unused=True)
            for value, grad in zip(leaves, got, strict=True):
                give(value, len(ctx.program.steps), grad)
        for step, how in reversed(ctx.done):
            if isinstance(how, Played):
                given = [
                    summed(p) if (p := parts.get(n)) else None
                    for n, w in zip(step.writes, how.graph.out_wanted, strict=True)
                    if w
                ]
                self._replayed(ctx, step, how, given, give, found)
            else:
                self._through(self.eager.backward(how, {n: parts.get(n, []) for n in how.roots}), give, found)
        return found

    def _replayed(
        self, ctx: GraphContext, step: Step, played: Played, given: Sequence[Tensor | None], give: Give,
        found: Gradients,
    ) -> None:  # fmt: skip
        """The backward of a step that was replayed."""
        if all(grad is not None for grad in given) and given:
            back = played.graph.play_back(played, [grad for grad in given if grad is not None])
            self._hand_over(ctx.program, step, back, played, give, found)
            return
        # Some output was not used. Autograd would not start from it, so the sums may be others.
        own: dict[int, Any] = dict(zip(step.reads, played.reads, strict=True))
        slot = dict(zip(self.holds_of(step), played.again(), strict=True))
        alone = self.eager.alone(ctx.program, step, slot.__getitem__, own, ctx.wanted, played.context)
        roots = [n for n, w in zip(step.writes, played.graph.out_wanted, strict=True) if w]
        parts = {n: [grad] for n, grad in zip(roots, given, strict=True) if grad is not None}
        self._through(self.eager.backward(alone, parts), give, found)

    def _hand_over(
        self, program: Program, step: Step, back: Found, played: Played, give: Give, found: Gradients
    ) -> None:
        """Name the gradients of a replay."""
        arrived = iter(back.inputs)
        for n, read, wanted in zip(step.reads, played.reads, played.graph.wanted, strict=True):
            grad = next(arrived) if isinstance(read, Tensor) else None
            if wanted:
                give(n, step.index, grad)
        names = self.holds_of(step)
        for i in sorted(played.graph.trains):
            use = step.index if names[i] in program.tied else -1
            found.parameters[names[i], use] = back.parameters.get(i)

    @staticmethod
    def _through(part: Gradients, give: Give, found: Gradients) -> None:
        for (value, reader), grad in part.values.items():
            give(value, reader, grad)
        found.parameters.update(part.parameters)

    def counters(self) -> dict[str, float]:
        """Steps replayed and run since the last call, and graphs captured."""
        found = {name: float(self.counts[name]) for name in ("replayed steps", "eager steps", "graphs")}
        self.counts.clear()
        return found

    # -- split backward

    def backward_input(self, ctx: GraphContext, grads: Mapping[int, list[Tensor]]) -> Gradients:
        """All gradients: one replay gives those of inputs and of weights, and W has nothing left to do."""
        return self.backward(ctx, grads)

    def backward_weight(self, ctx: GraphContext) -> dict[tuple[str, int], Tensor | None]:
        """Nothing is left for later."""
        return {}


def _same(one: Mapping[Any, Tensor | None], two: Mapping[Any, Tensor | None]) -> bool:
    """Whether gradients are the same, and those that are missing."""
    return one.keys() == two.keys() and all(
        (one[key] is None) == (two[key] is None) and same_bits(one[key], two[key]) for key in one
    )


def _shape(value: Any, wanted: bool) -> Hashable:
    return (value.shape, value.dtype, wanted) if isinstance(value, Tensor) else value


def _call(step: Step) -> Hashable:
    """`same_call`, quickly where a module is called with what is read, in that order, and gives one tensor."""
    return step.no_grad if step.direct and type(step.out) is Ref else same_call(step)


def _layout(held: Sequence[Tensor]) -> Hashable:
    """How tensors lie, and which of them train."""
    return tuple((p.members, p.places) for p in parcels(held)), tuple(t.requires_grad for t in held)
