"""Several micro-batches of a network between forward and backward at once, each with weights of its own."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sennit as sn
from sennit.memory.parcel import kept
from sennit.program.cut import cut
from sennit.program.run import bind_inputs
from sennit.program.step import Program
from sennit.space.names import unique_tensors
from sennit.supernet.context import StepContext, step_context

WIDTH = 6


class Drops(nn.Module):
    """Two outputs, and draws."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return F.dropout(torch.tanh(self.a(x)), 0.5, self.training), x * torch.sigmoid(self.b(x))


class Norm(nn.Module):
    """Writes buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.linear(self.norm(x)))


class Through(nn.Module):
    """Gives what it was given, and a constant."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, torch.ones_like(x)


class Turned(nn.Module):
    """Outputs and gradients that are not contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).t().contiguous().exp().clamp(max=3).t()


class Looks(nn.Module):
    """Attention, with draws of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, dropout=0.2)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attention(x, x, x)[0]


KINDS: dict[str, Callable[[], nn.Module]] = {
    "drops": Drops, "norm": Norm, "through": Through, "turned": Turned, "looks": Looks,
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "tanh": lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Dropout(0.3)), "identity": nn.Identity,
}  # fmt: skip


class Net(sn.ModelSpace):
    """Layers of some kinds, with what steps may be between them: views, sums, a skip, a use of one weight twice."""

    def __init__(self, draw: random.Random, layers: int) -> None:
        super().__init__()
        names = [draw.choice([*KINDS]) for _ in range(layers)]
        self.between = [draw.choice(["", "view", "skip", "add", "unused"]) for _ in names]
        self.layers = nn.ModuleList(KINDS[name]() for name in names)
        self.one, self.other, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)
        self.other.weight = self.one.weight
        self.shift = nn.Parameter(torch.empty(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = skip = self.one(x)
        for how, layer in zip(self.between, self.layers, strict=True):
            found = layer(x)
            x = found[0] if isinstance(found, tuple) else found
            if isinstance(found, tuple) and how != "unused":
                x = x + found[1]
            if how == "view":
                x = x.view(x.shape[0] * WIDTH).view(-1, WIDTH)
            elif how == "skip":
                x, skip = x + skip, x
            elif how == "add":
                x = x + self.shift
        return self.last(self.other(x))


def make(draw: random.Random, layers: int) -> Net:
    """A network with numbers in it."""
    torch.manual_seed(draw.randrange(1000))
    net = Net(draw, layers)
    for tensor in unique_tensors(net).values():
        if tensor.dtype.is_floating_point:
            tensor.data.normal_()
    return net


def of_user(output: Tensor) -> Tensor:
    return output.square().mean()


@dataclass
class Later:
    """A W that is to come: what it needs, and where its gradients go."""

    n: int
    ctx: Any
    given: dict[int, list[Tensor]]
    found: dict[Any, Tensor | None]
    cell: list[Any]


@dataclass
class Flight:
    """One micro-batch of a network on its way through runs of steps.

    Attributes:
        key: number of the subnet, and of the micro-batch.
        late: how many runs may wait for their W; None: backwards are not split.
        given: all that came out of it, held until the end: outputs, losses, gradients.
    """

    program: Program
    places: list[int]
    held: dict[str, Tensor]
    x: Tensor
    key: tuple[int, int]
    precision: str = "fp32"
    late: int | None = None
    given: list[Any] = field(default_factory=list[Any])
    values: dict[int, tuple[Any, bool]] = field(default_factory=dict[int, tuple[Any, bool]])
    grads: dict[int, dict[int, Tensor | None]] = field(default_factory=dict[int, dict[int, Tensor | None]])

    def __post_init__(self) -> None:
        self.runs = cut(self.program, self.places)
        self.contexts: list[Any] = [None] * len(self.runs)
        self.before: list[dict[str, Tensor]] = [{}] * len(self.runs)
        self.at, self.back = 0, len(self.runs)
        self.later: list[Later] = []
        self.left = 0
        self.context = StepContext.of(0, *self.key, self.precision, self.x.device)

    @property
    def done(self) -> bool:
        return not self.back and not self.later

    def advance(self, executor: Any, at_step: Callable[[Any], None] = lambda step: None) -> None:
        """The next forward, or the next backward."""
        with step_context(self.context):
            if self.at < len(self.runs):
                self.forward(executor, at_step)
                self.at += 1
            elif self.back:
                self.backward(executor, self.back - 1)
                self.back -= 1
            if self.later and (not self.back or len(self.later) > (self.late or 0)):
                later = self.later.pop(0)
                self.hand_in(later.cell, {**later.found, **executor.backward_weight(later.ctx)})

    def computed(self, executor: Any, n: int, slot: Any, at_step: Callable[[Any], None]) -> Any:
        run = self.runs[n]
        arrivals = {a.value: self.values[a.value] for a in run.arrivals}
        inputs = bind_inputs(self.program, (self.x,), {}) if run.reads_input else {}
        loss = of_user if run.has_loss else None
        return executor.forward(self.program, run, slot, arrivals, inputs, self.context, loss, at_step)

    def forward(self, executor: Any, at_step: Callable[[Any], None]) -> None:
        run = self.runs[self.at]
        before = {n: self.held[n].detach().clone() for step in run.steps for n in step.written}
        try:
            out, ctx = self.computed(executor, self.at, self.held.__getitem__, at_step)
        except BaseException:
            for name, tensor in before.items():
                self.held[name].copy_(tensor)
            raise
        self.contexts[self.at], self.before[self.at] = ctx, before
        self.values.update({v: (t, v in ctx.roots) for v, t in out.items()})
        assert all(t.is_contiguous() for t in out.values() if isinstance(t, Tensor))
        self.given.append([out[v] for v in sorted(out)])
        self.given.append(None if ctx.loss is None else ctx.loss.detach())

    def again(self, executor: Any) -> None:
        """The next backward has failed: what its forward has kept is dropped, and the forward runs again."""
        if self.at < len(self.runs) or self.done:
            return
        if self.later:
            later = self.later[0]
            later.ctx.drop()
            later.ctx = self.from_scratch(executor, later.n)
            later.found = {**later.found, **executor.backward_input(later.ctx, later.given).parameters}
        else:
            n = self.back - 1
            self.contexts[n].drop()
            self.contexts[n] = self.from_scratch(executor, n)

    def from_scratch(self, executor: Any, n: int) -> Any:
        copies = {**self.held, **{name: tensor.clone() for name, tensor in self.before[n].items()}}
        with step_context(self.context):
            return self.computed(executor, n, copies.__getitem__, lambda step: None)[1]

    def backward(self, executor: Any, n: int) -> None:
        ctx, self.contexts[n] = self.contexts[n], None
        grads = {
            v: [g for r in sorted(self.grads[v], reverse=True) if (g := self.grads[v][r]) is not None]
            for v in ctx.roots
            if v in self.grads
        }
        split = self.late is not None
        found = (executor.backward_input if split else executor.backward)(ctx, grads)
        for (value, reader), grad in found.values.items():
            self.grads.setdefault(value, {})[reader] = grad
            assert grad is None or grad.is_contiguous()
        self.hand_in(cell := [], found.values)
        self.given.append(cell)
        self.given.append(cell := [])
        if split and ctx.joints:
            self.left += 1
            self.later.append(Later(n, ctx, grads, found.parameters, cell))
        else:
            self.hand_in(cell, found.parameters)

    def hand_in(self, cell: list[Any], named: dict[Any, Tensor | None]) -> None:
        keys = sorted(named, key=str)
        cell += [str(keys), ["none" if (g := named[key]) is None else kept([g])[0] for key in keys]]
