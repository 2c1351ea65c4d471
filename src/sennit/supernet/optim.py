"""Optimizers: torch's own, one tensor at a time, over whatever part of the supernet a subnet wrote.

A torch optimizer skips parameters without a gradient, which is all that a supernet needs: state appears when a
parameter first steps, and `step` counts its own steps. Workers use the same classes on one group at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sennit.errors import RecipeError


def with_grad(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """Those that have a gradient. Most of a supernet has none, so this look is all that the rest of it costs."""
    return [p for p in parameters if p.grad is not None]


class OnlyWritten(torch.optim.Optimizer):
    """Spends time on parameters with a gradient.

    torch skips the others too, one after the other in a long loop, and a supernet has twenty times as many parameters
    as a subnet.
    """

    def _init_group(self, group: Mapping[str, Any], *lists: Any) -> Any:
        """torch collects here what it steps."""
        return super()._init_group({**group, "params": with_grad(group["params"])}, *lists)  # type: ignore[misc]

    def zero_grad(self, set_to_none: bool = True) -> None:
        if not set_to_none:
            super().zero_grad(set_to_none=False)
            return
        for group in self.param_groups:
            for parameter in with_grad(group["params"]):
                parameter.grad = None


class SGD(OnlyWritten, torch.optim.SGD):
    """torch's, see `OnlyWritten`."""


class Adam(OnlyWritten, torch.optim.Adam):
    """torch's, see `OnlyWritten`."""


class AdamW(OnlyWritten, torch.optim.AdamW):
    """torch's, see `OnlyWritten`."""


OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, type | tuple[type, ...]]]] = {
    "sgd": (
        SGD,
        {"momentum": float, "dampening": float, "weight_decay": float, "nesterov": bool},
    ),
    "adam": (Adam, {"betas": list, "eps": float, "weight_decay": float, "amsgrad": bool}),
    "adamw": (AdamW, {"betas": list, "eps": float, "weight_decay": float, "amsgrad": bool}),
}
"""Name in a recipe: torch class, and the arguments a recipe may set with their types."""

STATE_KEYS = {"sgd": ("momentum_buffer",), "adam": ("exp_avg", "exp_avg_sq"), "adamw": ("exp_avg", "exp_avg_sq")}


def state_keys(name: str, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Keys of the per-parameter state tensors that have the parameter's shape."""
    if name == "sgd":
        return STATE_KEYS["sgd"] if arguments.get("momentum", 0.0) else ()
    return STATE_KEYS[name] + (("max_exp_avg_sq",) if arguments.get("amsgrad") else ())


def check_optimizer(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments with their types checked, lists made tuples.

    Raises:
        RecipeError: an unknown optimizer or argument, or a value of the wrong type.
    """
    if name not in OPTIMIZERS:
        raise RecipeError(f"optimizer.name must be one of {', '.join(sorted(OPTIMIZERS))}, got {name!r}")
    legal = OPTIMIZERS[name][1]
    checked: dict[str, Any] = {}
    for key, value in arguments.items():
        if key not in legal:
            there = ". lr is a key of the recipe itself, above the tables" if key == "lr" else ""
            raise RecipeError(f"optimizer.{key} is not an argument of {name}; legal: {', '.join(sorted(legal))}{there}")
        wanted = legal[key]
        good = (
            isinstance(value, int | float) and not isinstance(value, bool) if wanted is float
            else isinstance(value, list | tuple) if wanted is list
            else isinstance(value, wanted)
        )  # fmt: skip
        if not good:
            raise RecipeError(f"optimizer.{key} = {value!r} has the wrong type; a {wanted.__name__} is legal")  # type: ignore[union-attr]
        checked[key] = tuple(value) if isinstance(value, list) else value
    return checked


def make_optimizer(
    name: str, arguments: Mapping[str, Any], parameters: Iterable[tuple[str, nn.Parameter]], lr: float
) -> torch.optim.Optimizer:
    """torch's optimizer over named parameters.

    On a GPU Adam steps by torch's `foreach` kernels, torch's own default there: a tenth of the launches, and other bits
    than one tensor at a time (H200, torch 2.11). What a tensor gets does not depend on which others step with it, so a
    whole network at once, a group, and a group in one piece have the same bits. SGD steps one tensor at a time: by
    `foreach` torch treats all tensors otherwise as soon as one of them steps for the first time. Which it is, torch
    decides at each step: `--offload` makes its optimizer before anything is on the GPU.
    """
    foreach = False if name == "sgd" else None  # None: torch looks where the parameters are when they step
    try:
        return OPTIMIZERS[name][0](list(parameters), lr=lr, foreach=foreach, **arguments)  # type: ignore[call-arg]
    except ValueError as error:
        raise RecipeError(f"optimizer {name}: {error}") from error


def parameter_names(optimizer: torch.optim.Optimizer) -> dict[int, str]:
    """`id(parameter)` to name, as given at construction."""
    names: dict[int, str] = {}
    for group in optimizer.param_groups:
        for parameter, name in zip(group["params"], group["param_names"], strict=True):
            names[id(parameter)] = name
    return names


class DelayedStep:
    """Gives an optimizer `shared = "delayed:K"`: gradients of always-shared parameters wait K-1 steps.

        step of subnet z:   queue g_z;   apply g_{z-K+1} with the learning rate of z

    so that subnet y reads the version with the gradients of subnets <= y-K.

    Args:
        optimizer: its `step` is replaced.
        shared: names of the always-shared parameters.
        lag: K >= 2.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, shared: Iterable[str], lag: int) -> None:
        self.lag = lag
        names = parameter_names(optimizer)
        wanted = set(shared)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.parameters: dict[str, nn.Parameter] = {names[id(p)]: p for p in parameters if names[id(p)] in wanted}
        self.pending: deque[tuple[int, dict[str, Tensor | None]]] = deque()
        self.seq_id = -1
        """Subnet of the next step; `Task.set_lr` sets it."""
        self._step = optimizer.step
        optimizer.step = self.step  # type: ignore[method-assign, assignment]
        optimizer.delayed = self  # type: ignore[attr-defined]

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        self.pending.append((self.seq_id, {name: p.grad for name, p in self.parameters.items()}))
        due = self.pending.popleft()[1] if len(self.pending) >= self.lag else {}
        for name, parameter in self.parameters.items():
            parameter.grad = due.get(name)
        return self._step(closure)

    def flush(self, lr_of: Callable[[int], float], optimizer: torch.optim.Optimizer) -> None:
        """Apply everything that waits, each with the rate of the step it was due at. For copies only."""
        others = {id(p): p.grad for g in optimizer.param_groups for p in g["params"]}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None
        while self.pending:
            seq_id, grads = self.pending.popleft()
            for group in optimizer.param_groups:
                group["lr"] = lr_of(seq_id + self.lag - 1)
            for name, parameter in self.parameters.items():
                parameter.grad = grads[name]
            self._step()
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = others[id(parameter)]


def delayed_of(optimizer: torch.optim.Optimizer) -> DelayedStep | None:
    return getattr(optimizer, "delayed", None)
