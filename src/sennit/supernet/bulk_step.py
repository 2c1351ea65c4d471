"""`BulkStep`: gives an optimizer `sync = "bulk:K"`: one step per K subnets, on the mean of their gradients.

    step of subnet y:  total += g_y            in order of y; the first is copied, not added to zero
    last of the bulk:  total / K ─▶ clip ─▶ step with its learning rate

A subnet that does not use a parameter adds nothing to it; the sum is divided by K all the same, as if its gradient
were zero. What no subnet of the bulk used stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from sennit.supernet.optim import parameter_names, with_grad


class BulkStep:
    """Makes an optimizer step once per bulk.

    Args:
        optimizer: its `step` is replaced.
        size: K.
        clip: clips the mean gradients, by name, in place.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, size: int, clip: Callable[[Mapping[str, Tensor]], None]
    ) -> None:
        self.size, self.clip = size, clip
        names = parameter_names(optimizer)
        self.parameters = {names[id(p)]: p for group in optimizer.param_groups for p in group["params"]}
        self._names = names
        self.total: dict[str, Tensor] = {}
        self.seq_id = -1
        """Subnet of the next step; `Task.set_lr` sets it."""
        self._step = optimizer.step
        optimizer.step = self.step  # type: ignore[method-assign, assignment]
        optimizer.bulk = self  # type: ignore[attr-defined]

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        for parameter in with_grad(self.parameters.values()):
            name = self._names[id(parameter)]
            assert parameter.grad is not None
            if name in self.total:
                self.total[name].add_(parameter.grad)
            else:
                self.total[name] = parameter.grad.clone()
        if (self.seq_id + 1) % self.size:
            return None
        for grad in self.total.values():
            grad.div_(self.size)
        self.clip(self.total)
        for parameter in with_grad(self.parameters.values()):
            parameter.grad = None
        for name, total in self.total.items():
            self.parameters[name].grad = total
        self.total = {}
        return self._step(closure)


def bulk_of(optimizer: torch.optim.Optimizer) -> BulkStep | None:
    return getattr(optimizer, "bulk", None)
