"""Measure what every kind of step of a space costs on a device.

    covering programs ─▶ step by step ─▶ a kind seen before? ─yes─▶ its outputs are taken as they were
                                                 │ no
                                                 ▼
                                        F, B, I and W, the optimizer's step, bytes

Parameters are random numbers, made for the step that is measured and forgotten after it: times do not depend on them,
and the supernet need not fit on the device. The device is waited for at both ends, so on a GPU a small layer costs what
its launches cost.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from sennit.executor.eager import EagerExecutor, RunContext
from sennit.profile.kinds import kind_of
from sennit.profile.profile import Kind
from sennit.program.copied import copied
from sennit.program.cut import Run, cut
from sennit.program.run import bind_inputs
from sennit.program.step import Program, Step
from sennit.program.template import map_tree
from sennit.space.model_space import as_call
from sennit.space.names import canonical_names, unique_tensors
from sennit.supernet.build import Built
from sennit.supernet.context import StepContext, step_context
from sennit.supernet.generators import generators_restored
from sennit.supernet.loss import count_terms
from sennit.supernet.optim import make_optimizer, state_keys

LEAST, MOST = 3, 32
"""Repeats of one measurement that count, at least and at most. With three, the median leaves out a lap that something
else held up. On a GPU a single one had 0.6 s for a layer of 1 ms, and partitions put most other layers elsewhere."""


@dataclass
class Measured:
    """What has been measured so far.

    Attributes:
        numbers: kind, as `kind_of` writes it, to its place in `kinds`.
        steps: step to place of its kind.
        outputs: of each kind, what it gave.
    """

    kinds: list[Kind] = field(default_factory=list[Kind])
    steps: dict[str, int] = field(default_factory=dict[str, int])
    numbers: dict[str, int] = field(default_factory=dict[str, int])
    outputs: list[list[Any]] = field(default_factory=list[list[Any]])


class Meter:
    """Times steps of a space on one device.

    Args:
        each_s: how long one measurement may be repeated, seconds.
    """

    def __init__(self, built: Built, device: torch.device, each_s: float = 0.05) -> None:
        self.built, self.device, self.each_s = built, device, each_s
        skeleton = copied(built.recordings.skeleton)
        self.like = unique_tensors(skeleton)
        self.modules = dict(skeleton.named_modules())
        self.executor = EagerExecutor(skeleton, canonical_names(skeleton), frozenset(), device)
        self.trained = set(built.trained)
        self.context = StepContext.of(built.recipe.seed, 0, 0, built.recipe.precision, device)
        self.measured = Measured()

    def all(self) -> Measured:
        """Every kind of step that the space has."""
        x, y = self.built.micro_batches(self.built.batches[0])[0]
        inputs, self.target = self.here(as_call(x)), self.here(y)
        with generators_restored():
            for program in self.built.covering:
                self.program(program, inputs)
        return self.measured

    def here(self, tree: Any) -> Any:
        """With all tensors on the device."""
        return map_tree(lambda leaf: leaf.to(self.device) if isinstance(leaf, Tensor) else leaf, tree)

    def program(self, program: Program, inputs: Any) -> None:
        """Every step of a program."""
        values: dict[int, Any] = dict(bind_inputs(program, *inputs))
        wanted: dict[int, bool] = {}
        """Whether a gradient goes back to a value."""
        for run in cut(program, list(range(len(program.steps)))):
            step = run.steps[0]
            if step.kind == "shape":
                values[step.writes[0]] = tuple(values[step.reads[0]].shape)
                continue
            module = self.modules[step.target] if step.kind == "module" else None
            asked = [wanted.get(n, False) for n in step.reads]
            kind = repr((kind_of(step, module, self.like.__getitem__, values), asked, run.has_loss))
            number = self.measured.numbers.get(kind)
            if number is None:
                number = self.measured.numbers[kind] = len(self.measured.kinds)
                self.measure(program, run, values, wanted)
            self.measured.steps[step.name] = number
            for n, (value, grads) in zip(step.writes, self.measured.outputs[number], strict=True):
                values[n], wanted[n] = value, grads

    def measure(self, program: Program, run: Run, values: dict[int, Any], wanted: dict[int, bool]) -> None:
        """One step, of a kind that has not been seen."""
        step = run.steps[0]
        held = {name: self.tensor(name) for name in (*step.params, *step.buffers)}
        arrivals = {a.value: (values[a.value], wanted.get(a.value, False)) for a in run.arrivals}
        inputs = {n: values[n] for n in range(program.n_inputs)} if run.reads_input else {}

        def forward() -> tuple[dict[int, Any], RunContext]:
            with step_context(self.context):
                return self.executor.forward(
                    program, run, held.__getitem__, arrivals, inputs, self.context, self.loss, lambda step: None
                )

        own = {tensor.untyped_storage().data_ptr() for tensor in held.values()}
        saved: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                saved[storage.data_ptr()] = storage.nbytes()
            return tensor

        with saved_tensors_hooks(pack, lambda tensor: tensor):
            out, ctx = forward()
        times = self.times(forward, len(ctx.roots) > 0 or ctx.loss is not None)
        leaves = {n: held[n] for n in step.params if n in self.trained}
        size = sum(leaf.nbytes for leaf in leaves.values())
        recipe = self.built.recipe
        self.measured.kinds.append(
            Kind(
                name=named(step, self.modules), **times, step=self.step_time(leaves),
                out_bytes=sum(v.nbytes for v in out.values() if isinstance(v, Tensor)), held_bytes=sum(saved.values()),
                parameter_bytes=sum(held[n].nbytes for n in step.params),
                state_bytes=size * len(state_keys(recipe.optimizer_name, recipe.optimizer_arguments)),
            )
        )  # fmt: skip
        self.measured.outputs.append([(out.get(n), n in ctx.roots) for n in step.writes])

    def tensor(self, name: str) -> Tensor:
        """Memory in the shape of a parameter or buffer: small random numbers, ones for other buffers."""
        like = self.like[name]
        made = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=self.device)
        if not like.dtype.is_floating_point:
            return made.zero_()
        if not isinstance(like, nn.Parameter):
            return made.fill_(1.0)  # a variance among them
        return nn.Parameter(made.normal_(0.0, 0.02), requires_grad=name in self.trained)

    def loss(self, output: Any) -> Tensor:
        """Of the last step's output; the loss is part of that step."""
        counts = count_terms(self.built.loss_function, [self.target], output)
        return self.built.loss_of(output, self.target, counts, 0)

    # -- clocks

    def times(self, forward: Callable[[], tuple[dict[int, Any], RunContext]], backward: bool) -> dict[str, float]:
        """Medians of F, B, I and W; the first lap warms up, and neither counts nor takes from the time."""
        self.lap(forward, backward)
        laps: list[dict[str, float]] = []
        end = time.monotonic() + self.each_s
        while len(laps) < LEAST or (time.monotonic() < end and len(laps) < MOST):
            laps.append(self.lap(forward, backward))
        return {name: statistics.median(lap[name] for lap in laps) for name in laps[0]}

    def lap(self, forward: Callable[[], tuple[dict[int, Any], RunContext]], backward: bool) -> dict[str, float]:
        """Seconds of F, B, I and W, each once."""
        t = self.now()
        _, ctx = forward()
        lap = {"forward": self.now() - t, "backward": 0.0, "input": 0.0, "weight": 0.0}
        if not backward:
            return lap
        grads = {v: [torch.ones_like(root)] for v, root in ctx.roots.items()}
        t = self.now()
        self.executor.backward(ctx, grads)
        lap["backward"] = self.now() - t
        _, ctx = forward()
        t = self.now()
        self.executor.backward_input(ctx, grads)
        middle = self.now()
        self.executor.backward_weight(ctx)
        return {**lap, "input": middle - t, "weight": self.now() - middle}

    def step_time(self, leaves: dict[str, Tensor]) -> float:
        """Of the optimizer, once its state is there."""
        if not leaves:
            return 0.0
        recipe = self.built.recipe
        parameters = [(name, leaf) for name, leaf in leaves.items() if isinstance(leaf, nn.Parameter)]
        optimizer = make_optimizer(recipe.optimizer_name, recipe.optimizer_arguments, parameters, 1e-3)
        laps: list[float] = []
        for _ in range(4):
            for leaf in leaves.values():
                leaf.grad = torch.full_like(leaf, 1e-3)
            t = self.now()
            optimizer.step()
            laps.append(self.now() - t)
        return statistics.median(laps[1:])

    def now(self) -> float:
        """After all that the device has been given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def named(step: Step, modules: dict[str, nn.Module]) -> str:
    """What users call a layer of this kind: its class, and the name of the candidate that was measured."""
    if step.kind != "module":
        return step.call
    candidate = step.target.rpartition(".")[2]
    known = type(modules[step.target]).__name__
    return f"{known} {candidate}" if step.labels and not candidate.isdigit() else known
