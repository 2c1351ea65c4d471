"""`GroupStep`: the optimizer step of a group, by torch's own optimizer, on tensors that lie elsewhere.

    every tensor by itself      ten tensors, Adam: about a hundred kernels, each launched from the host
    the group in one piece      ten kernels: parameters, state and gradients lie alike, and an optimizer of this kind
                                does the same to every number
    all groups of a subnet      `Optimizer` steps what it is given, so groups that can step at the same time do

The last two are for GPUs, where launches are what a step costs. The second needs gradients in one piece, and tensors
that have stepped equally often. Their bits are those of the first (`tests/memory/test_parcel.py`, also on an H200).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sennit.memory.gradients import as_gradients
from sennit.memory.parcel import Place, numbers, parcels
from sennit.supernet.optim import make_optimizer


@dataclass(frozen=True)
class Part:
    """What steps as one tensor.

    Attributes:
        state: torch's, of this parameter; empty before its first step.
        keep: told torch's state after the step.
    """

    parameter: nn.Parameter
    grad: Tensor
    state: dict[str, Any]
    keep: Callable[[Mapping[str, Tensor]], None]


class Optimizer:
    """torch's optimizer over whatever steps now.

    Args:
        name, arguments: the recipe's.
        device: of what it will step.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any], device: torch.device) -> None:
        self.optimizer = make_optimizer(name, arguments, [("", nn.Parameter(torch.zeros(1, device=device)))], 0.0)
        # without what torch wraps around it (hooks, a profiler's range, `torch.compile`), which takes the host longer
        # than the step of a small group
        self.apply = inspect.unwrap(type(self.optimizer).step)

    def step(self, parts: Iterable[Part], lr: float) -> None:
        """Step all parts with this learning rate."""
        held, group = list(parts), self.optimizer.param_groups[0]
        group["params"], group["lr"] = [part.parameter for part in held], lr
        for part in held:
            part.parameter.grad = part.grad
            self.optimizer.state[part.parameter] = part.state
        with torch.no_grad():
            self.apply(self.optimizer)  # pyright: ignore[reportCallIssue]
        for part in held:
            part.keep(self.optimizer.state[part.parameter])
            part.parameter.grad = None
        self.optimizer.state.clear()
        group["params"] = []


class GroupStep:
    """Steps the parameters of a group in place.

    Args:
        optimizer: may be shared with other groups.
        keys: of the state per parameter, `step` included where the optimizer counts steps.
        parameters: leaf per name.
        state: `name.key` to state tensor; `name.stepped` (uint8, on the CPU) tells whether the state exists.
        whole: step the group in one piece where that is possible.
    """

    def __init__(
        self, optimizer: Optimizer, keys: tuple[str, ...], parameters: Mapping[str, nn.Parameter],
        state: Mapping[str, Tensor], whole: bool = False,
    ) -> None:  # fmt: skip
        self.optimizer, self.keys, self.parameters, self.state = optimizer, keys, parameters, state
        self.whole = Whole.of(keys, parameters, state) if whole else None

    def __call__(self, grads: Mapping[str, Tensor], lr: float) -> None:
        """Step the parameters that have a gradient, with this learning rate."""
        self.optimizer.step(self.parts(grads), lr)

    def parts(self, grads: Mapping[str, Tensor]) -> list[Part]:
        """What steps: one part for each parameter that has a gradient, or one for all."""
        whole = None if self.whole is None else self.whole.part(grads)
        if whole is not None:
            return [whole]
        return [self._part(name, grads[name]) for name in self.parameters if grads.get(name) is not None]

    def _part(self, name: str, grad: Tensor) -> Part:
        state = {key: self.state[f"{name}.{key}"] for key in self.keys}
        stepped = self.state[f"{name}.stepped"]
        if stepped.item():
            return Part(self.parameters[name], grad, {**state}, _in_place)

        def keep(after: Mapping[str, Tensor]) -> None:
            for key in self.keys:
                state[key].copy_(after[key])
            stepped.fill_(1)

        return Part(self.parameters[name], grad, {}, keep)  # torch makes it, as at a parameter's first step


def _in_place(after: Mapping[str, Tensor]) -> None:
    """State that exists is written where it is."""


class Whole:
    """A group whose parameters and state lie alike, as one parameter.

    Attributes:
        places: how the tensors lie in it.
        state: key to the state in the same layout.
        counters: how often each parameter has stepped, if the optimizer counts that; on the CPU, as numpy sees them.
            There a number is read or written in a tenth of the time that a tensor takes, and a step asks for all.
        flags: whether it has.
    """

    def __init__(
        self, parameter: nn.Parameter, places: tuple[Place, ...], state: dict[str, Tensor],
        counters: list[Tensor], flags: list[Tensor],
    ) -> None:  # fmt: skip
        self.parameter, self.places, self.state = parameter, places, state
        self.counters = [tensor.numpy() for tensor in counters]
        self.flags = [tensor.numpy() for tensor in flags]
        self._step = torch.zeros((), dtype=counters[0].dtype if counters else None)
        """What torch counts up, in place of `counters`."""
        self._count = self._step.numpy()

    @staticmethod
    def of(
        keys: tuple[str, ...], parameters: Mapping[str, nn.Parameter], state: Mapping[str, Tensor]
    ) -> Whole | None:  # fmt: skip
        """The group in one piece, or None if it lies otherwise."""
        held = [parameter.detach() for parameter in parameters.values()]
        lying = parcels(held)
        if len(lying) != 1 or any(tensor.dtype != held[0].dtype for tensor in held):
            return None
        found: dict[str, Tensor] = {}
        for key in keys:
            if key == "step":
                continue
            tensors = [state[f"{n}.{key}"] for n in parameters]
            if parcels(tensors) != lying:
                return None
            found[key] = _typed(lying[0].of(tensors[lying[0].members[0]]), held[0])
        flat = nn.Parameter(_typed(lying[0].of(held[lying[0].members[0]]), held[0]))
        counters = [state[f"{n}.step"] for n in parameters if "step" in keys]
        return Whole(flat, lying[0].places, found, counters, [state[f"{n}.stepped"] for n in parameters])

    def part(self, grads: Mapping[str, Tensor]) -> Part | None:
        """All parameters as one; None if they must step by themselves."""
        piece = as_gradients(grads).piece
        if len(grads) != len(self.flags) or piece is None or piece[1] != self.places:
            return None
        stepped, counts = {flag.item() for flag in self.flags}, {counter.item() for counter in self.counters}
        if len(stepped) > 1 or len(counts) > 1 or piece[0].shape != self.parameter.shape:
            return None
        if not stepped.pop():
            return Part(self.parameter, piece[0], {}, self._keep_first)
        held: dict[str, Any] = dict(self.state)
        for count in counts:
            self._count.fill(count)
            held["step"] = self._step
        return Part(self.parameter, piece[0], held, self._keep)

    def _keep(self, after: Mapping[str, Tensor]) -> None:
        count = self._count.item()
        for counter in self.counters:
            counter.fill(count)

    def _keep_first(self, after: Mapping[str, Tensor]) -> None:
        if self.counters:
            self._count.fill(after["step"].item())
        self._keep(after)
        for key, tensor in self.state.items():
            tensor.copy_(after[key])
        for flag in self.flags:
            flag.fill(1)


def _typed(piece: Tensor, like: Tensor) -> Tensor:
    """Bytes as numbers of a type."""
    return numbers(piece).view(like.dtype)
