"""`GroupStep`: the optimizer step of one group, by torch's own optimizer, on tensors that lie elsewhere.

    every tensor by itself      ten tensors, Adam: about a hundred kernels, each launched from the host
    the group in one piece      ten kernels: parameters, state and gradients lie alike, and an optimizer of this kind
                                does the same to every number

The second is for GPUs, where launches are what a step costs. It needs gradients in one piece, and tensors that have
stepped equally often. Its bits are those of the first (`tests/memory/test_parcel.py`, also on an H200).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sennit.memory.parcel import Place, bundle, numbers, parcels
from sennit.supernet.optim import make_optimizer


class GroupStep:
    """Steps the parameters of a group in place.

    Args:
        name, arguments: the recipe's optimizer.
        keys: of the state per parameter, `step` included where the optimizer counts steps.
        parameters: leaf per name.
        state: `name.key` to state tensor; `name.stepped` (uint8, on the CPU) tells whether the state exists.
        whole: step the group in one piece where that is possible.
    """

    def __init__(
        self, name: str, arguments: Mapping[str, Any], keys: tuple[str, ...],
        parameters: Mapping[str, nn.Parameter], state: Mapping[str, Tensor], whole: bool = False,
    ) -> None:  # fmt: skip
        self.parameters, self.state, self.keys = parameters, state, keys
        self.optimizer = make_optimizer(name, arguments, parameters.items(), 0.0)
        self.apply = bare_step(self.optimizer)
        self.whole: Whole | None = None
        if whole:
            self.whole = Whole.of(name, arguments, keys, parameters, state)

    def __call__(self, grads: Mapping[str, Tensor], lr: float) -> None:
        """Step the parameters that have a gradient, with this learning rate."""
        if self.whole is not None and self.whole.step(grads, lr):
            return
        self.optimizer.param_groups[0]["lr"] = lr
        first: list[str] = []
        for name, parameter in self.parameters.items():
            parameter.grad = grads.get(name)
            if parameter.grad is None:
                continue
            if self.state[f"{name}.stepped"].item():
                self.optimizer.state[parameter] = {key: self.state[f"{name}.{key}"] for key in self.keys}
            else:
                self.optimizer.state[parameter] = {}  # torch makes it, as at a parameter's first step
                first.append(name)
        self.apply()
        for name in first:
            for key in self.keys:
                self.state[f"{name}.{key}"].copy_(self.optimizer.state[self.parameters[name]][key])
            self.state[f"{name}.stepped"].fill_(1)
        for parameter in self.parameters.values():
            parameter.grad = None
        self.optimizer.state.clear()


class Whole:
    """A group whose parameters and state lie alike, as one parameter.

    Attributes:
        places: how the tensors lie in it.
        state: key to the state in the same layout.
        small: of each parameter, how often it has stepped, and whether it has; on the CPU.
    """

    def __init__(
        self, optimizer: tuple[str, Mapping[str, Any]], parameter: nn.Parameter, places: tuple[Place, ...],
        state: dict[str, Tensor], small: list[tuple[Tensor | None, Tensor]],
    ) -> None:  # fmt: skip
        self.parameter, self.places, self.state, self.small = parameter, places, state, small
        self.optimizer = make_optimizer(*optimizer, [("whole", parameter)], 0.0)
        self.apply = bare_step(self.optimizer)

    @staticmethod
    def of(
        name: str, arguments: Mapping[str, Any], keys: tuple[str, ...], parameters: Mapping[str, nn.Parameter],
        state: Mapping[str, Tensor],
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
        small = [(state[f"{n}.step"] if "step" in keys else None, state[f"{n}.stepped"]) for n in parameters]
        return Whole((name, arguments), flat, lying[0].places, found, small)

    def step(self, grads: Mapping[str, Tensor], lr: float) -> bool:
        """Step all parameters; False, and nothing is done, if they must step by themselves."""
        piece = bundle(list(grads.values()))
        if len(grads) != len(self.small) or piece is None or tuple(piece[1]) != self.places:
            return False
        counts = {(int(stepped.item()), None if n is None else n.item()) for n, stepped in self.small}
        if len(counts) > 1 or piece[0].shape != self.parameter.shape:
            return False
        ((stepped, count),) = counts
        held: dict[str, Any] = dict(self.state) if stepped else {}
        if stepped and count is not None:
            step = self.small[0][0]
            assert step is not None
            held["step"] = step.clone()
        self.optimizer.state[self.parameter] = held
        self.optimizer.param_groups[0]["lr"] = lr
        self.parameter.grad = piece[0]
        self.apply()
        after = self.optimizer.state[self.parameter]
        if not stepped:
            for key, tensor in self.state.items():
                tensor.copy_(after[key])
        counters = [n for n, _ in self.small if n is not None]
        if counters:  # one call: ten of them take the host as long as the step
            torch._foreach_copy_(counters, [after["step"]] * len(counters))  # pyright: ignore[reportPrivateImportUsage]
        if not stepped:
            for _, flag in self.small:
                flag.fill_(1)
        self.parameter.grad = None
        self.optimizer.state.clear()
        return True


def bare_step(optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    """The optimizer's step without what torch wraps around it (hooks, a profiler's range, `torch.compile`), which takes
    the host longer than the step of a small group."""
    step = inspect.unwrap(type(optimizer).step)

    def bare() -> None:
        with torch.no_grad():
            step(optimizer)  # pyright: ignore[reportCallIssue]

    return bare


def _typed(piece: Tensor, like: Tensor) -> Tensor:
    """Bytes as numbers of a type."""
    return numbers(piece).view(like.dtype)
