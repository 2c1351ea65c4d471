"""`EagerExecutor`: runs steps with autograd, one graph per run of steps.

    arrivals ─▶ leaf per reader ─▶ Edge ─▶ step ─▶ ... ─▶ departures
    slot     ─▶ leaf per tensor ──────────▶ step

Inside a run this is exactly what the plain loop does. At its ends, a value gets a leaf for every step that reads
it, and a tied parameter a leaf for every step that uses it, so that each contribution to a gradient comes out
separately and can be folded in the order of the contract (rules 1, 2 and 4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from sennit.executor.split import Joint, split, weight_gradients
from sennit.program.cut import Run
from sennit.program.run import Values, output_of, run_step
from sennit.program.step import Program, Step
from sennit.program.unit import Units
from sennit.supernet.context import StepContext
from sennit.supernet.edge import enter, settled

Received = Mapping[int, tuple[Any, bool]]
"""Value number to (tensor or shape, whether its gradient is wanted)."""


@dataclass
class RunContext:
    """What a backward needs: the graph, through its roots and leaves.

    Attributes:
        roots: tensors of departures that need gradients, by value.
        value_leaves: `(value, reading step)` to leaf, for arrivals whose gradient is wanted.
        parameter_leaves: `(name, using step)` to leaf; step -1 for a parameter used by one step.
        loss: this micro-batch's share of the loss, if the run ends in it.
        joints: between `backward_input` and `backward_weight`, where the latter starts.
        hooked: code that is not torch's or sennit's has seen tensors of the graph, and may have hung hooks on them.
        held: of each module that ran, its path and the tensors that were bound into it, in the order of its tables.
    """

    roots: dict[int, Tensor] = field(default_factory=dict)
    value_leaves: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    parameter_leaves: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    loss: Tensor | None = None
    joints: list[Joint] = field(default_factory=list)
    hooked: bool = False
    held: list[tuple[str, list[Tensor]]] = field(default_factory=list)


@dataclass
class Gradients:
    """What one backward of a run gives.

    Attributes:
        values: `(value, reading step)` to gradient or None.
        parameters: `(name, using step)` to gradient or None.
    """

    values: dict[tuple[int, int], Tensor | None]
    parameters: dict[tuple[str, int], Tensor | None]


class EagerExecutor:
    """Executes runs on one device.

    Args:
        skeleton: the space without memory; its modules are called with slots bound into them.
        names: canonical names by `id` of the skeleton's tensors.
        kept: names of buffers that training must not change (`shared = "frozen"`).
    """

    def __init__(
        self, skeleton: nn.Module, names: Mapping[int, str], kept: frozenset[str], device: torch.device
    ) -> None:
        self.modules = dict(skeleton.named_modules())
        self.device = device
        self.kept = kept
        for module in self.modules.values():
            module.training = True
        self.units = Units(self.modules)
        self._tables: dict[str, list[tuple[dict[str, Any], str, str]]] = {
            path: [
                (table, attribute, names[id(tensor)])
                for inner in module.modules()
                for table in (inner._parameters, inner._buffers)
                for attribute, tensor in table.items()
                if tensor is not None
            ]
            for path, module in self.modules.items()
            if path
        }

    def counters(self) -> dict[str, float]:
        """Figures about the time since the last call, by name, for the trace."""
        return {}

    def relieve(self) -> None:
        """The device is full; nothing is kept here that could go."""

    def held_by(self, target: str) -> list[str]:
        """Names of the tensors that a module holds, in the order of its tables."""
        return [name for _, _, name in self._tables[target]]

    def forward(
        self, program: Program, run: Run, slot: Callable[[str], Tensor], arrivals: Received, inputs: Values,
        context: StepContext, loss: Callable[[Any], Tensor] | None, on_step: Callable[[Step], None],
    ) -> tuple[dict[int, Any], RunContext]:  # fmt: skip
        """Run the steps of `run`, and the loss if it ends the program.

        Args:
            slot: tensor of a parameter (a leaf that requires gradients) or buffer, by canonical name.
            arrivals: values made by earlier runs.
            inputs: program inputs, if the run reads any.
            loss: from the program's output to the micro-batch's share of the loss.
            on_step: told before each step.

        Returns:
            Values that leave the run (tensors detached and settled, or shapes), and the context for `backward`.
        """
        ctx = RunContext()
        shared: Values = dict(inputs)
        per_reader: dict[int, dict[int, Any]] = {}
        for arrival in run.arrivals:
            payload, wanted = arrivals[arrival.value]
            for reader in arrival.readers:
                leaf = payload
                if wanted:
                    leaf = payload.detach().requires_grad_()
                    ctx.value_leaves[arrival.value, reader] = leaf
                per_reader.setdefault(reader, {})[arrival.value] = leaf
        for step in run.steps:
            on_step(step)
            values: Values = shared
            own = per_reader.get(step.index)
            if own:
                values = {**{n: shared[n] for n in step.reads if n in shared}, **own}
            self.step(program, step, slot, values, context, ctx)
            if own:
                shared.update({n: values[n] for n in step.writes})
        if run.has_loss:
            assert loss is not None
            end = len(program.steps)
            values = {**shared, **per_reader.get(end, {})}
            ctx.loss, ctx.hooked = loss(output_of(program, values)), True
        departures: dict[int, Any] = {}
        for value, _ in run.departures:
            made = shared[value]
            if isinstance(made, Tensor):
                if made.requires_grad:
                    ctx.roots[value] = made
                departures[value] = settled(made.detach())
            else:
                departures[value] = made
        return departures, ctx

    def alone(
        self, program: Program, step: Step, slot: Callable[[str], Tensor], values: Values, wanted: Mapping[int, bool],
        context: StepContext,
    ) -> RunContext:  # fmt: skip
        """One step as a run of its own.

        Args:
            values: read, and what the step makes is added, detached and settled.
            wanted: of a value, whether its gradient is.
        """
        ctx = RunContext()
        own: Values = {}
        for n in step.reads:
            own[n] = values[n]
            if wanted.get(n):
                own[n] = ctx.value_leaves[n, step.index] = values[n].detach().requires_grad_()
        self.step(program, step, slot, own, context, ctx)
        for n in step.writes:
            made = own[n]
            if isinstance(made, Tensor):
                if made.requires_grad:
                    ctx.roots[n] = made
                made = settled(made.detach())
            values[n] = made
        return ctx

    def step(
        self, program: Program, step: Step, slot: Callable[[str], Tensor], values: Values, context: StepContext,
        ctx: RunContext,
    ) -> None:  # fmt: skip
        if step.kind == "shape":
            run_step(step, values, None, slot, context, self.device, True)
            return
        entered: dict[str, Tensor] = {}

        def parameter(name: str) -> Tensor:
            known = entered.get(name)
            if known is not None:
                return known
            tensor = slot(name)
            if tensor.requires_grad:
                if name in program.tied:
                    leaf = tensor.detach().requires_grad_()
                    ctx.parameter_leaves[name, step.index] = leaf
                    tensor = enter(leaf)
                else:
                    ctx.parameter_leaves[name, -1] = tensor
            elif name in self.kept and name in step.written:
                tensor = tensor.clone()  # scratch: the forward may write it, and nobody will see
            entered[name] = tensor
            return tensor

        if step.kind == "call":
            run_step(step, values, None, parameter, context, self.device, True)
            return
        held = [parameter(name) for name in self.held_by(step.target)]
        ctx.held.append((step.target, held))
        self._bind(step.target, held)
        unit = self.units.at(step.target)
        ctx.hooked |= not unit.torch_only
        run_step(step, values, unit, parameter, context, self.device, True)

    def _bind(self, target: str, held: Sequence[Tensor]) -> None:
        for (table, attribute, _), tensor in zip(self._tables[target], held, strict=True):
            table[attribute] = tensor

    def _look_back(self, ctx: RunContext) -> None:
        """Bind what the forward of a run has read. A backward that looks at its modules (`torch.utils.checkpoint` runs
        them again) must find that, and another subnet may have read another version since."""
        for target, held in ctx.held:
            self._bind(target, held)

    def backward(self, ctx: RunContext, grads: Mapping[int, list[Tensor]]) -> Gradients:
        """Gradients of everything that came into the run.

        Args:
            grads: for each root, the gradients from its readers in later runs, last reader first; those that
                are None left out.

        Returns:
            One gradient per (value, reader) and (parameter, user); None where the loss does not depend on it.
        """
        roots, given = _roots(ctx, grads)
        self._look_back(ctx)
        keys: list[Any] = [*ctx.value_leaves, *ctx.parameter_leaves]
        leaves = [*ctx.value_leaves.values(), *ctx.parameter_leaves.values()]
        found: tuple[Tensor | None, ...] = (None,) * len(leaves)
        if roots and leaves:
            found = torch.autograd.grad(roots, leaves, given, allow_unused=True)
        n = len(ctx.value_leaves)
        settle = [None if g is None else settled(g) for g in found[:n]]
        return Gradients(dict(zip(keys[:n], settle, strict=True)), dict(zip(keys[n:], found[n:], strict=True)))

    def backward_input(self, ctx: RunContext, grads: Mapping[int, list[Tensor]]) -> Gradients:
        """Gradients of the values that came into the run, and of weights that cannot be left for later.

        Args:
            grads: as for `backward`.
        """
        roots, given = _roots(ctx, grads)
        self._look_back(ctx)
        parts = split(roots, ctx.parameter_leaves, ctx.value_leaves.values(), hooked=ctx.hooked)
        ctx.joints = parts.joints
        edges = [edge for joint in parts.joints for edge in joint.edges]
        leaves: list[Any] = [*ctx.value_leaves.values(), *edges, *(ctx.parameter_leaves[key] for key in parts.whole)]
        found: tuple[Tensor | None, ...] = (None,) * len(leaves)
        if roots and leaves:
            found = torch.autograd.grad(roots, leaves, given, allow_unused=True, retain_graph=True)
        n = len(ctx.value_leaves)
        arrived = iter(found[n : n + len(edges)])
        for joint in parts.joints:
            joint.grads = [next(arrived) for _ in joint.edges]
        settle = [None if g is None else settled(g) for g in found[:n]]
        return Gradients(
            dict(zip(ctx.value_leaves, settle, strict=True)),
            dict(zip(parts.whole, found[n + len(edges) :], strict=True)),
        )

    def backward_weight(self, ctx: RunContext) -> dict[tuple[str, int], Tensor | None]:
        """Gradients of the weights that `backward_input` has left out."""
        self._look_back(ctx)
        return weight_gradients(ctx.joints, ctx.parameter_leaves)


def _roots(ctx: RunContext, grads: Mapping[int, list[Tensor]]) -> tuple[list[Tensor], list[Tensor]]:
    """Tensors to start from, and their gradients."""
    roots: list[Tensor] = []
    given: list[Tensor] = []
    for value, root in ctx.roots.items():
        parts = grads.get(value, [])
        if not parts:
            continue
        roots.append(root)
        given.append(summed(parts))
    if ctx.loss is not None and ctx.loss.requires_grad:
        roots.append(ctx.loss)
        given.append(torch.ones_like(ctx.loss))
    return roots, given


def summed(parts: Sequence[Tensor]) -> Tensor:
    """Gradients of a value added up, at least one, in the order given: last reader first (contract, rule 4)."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
