"""`GroupStep`: the optimizer step of one group, by torch's own optimizer, on tensors that lie elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from sennit.supernet.optim import make_optimizer


class GroupStep:
    """Steps the parameters of a group in place.

    Args:
        name, arguments: the recipe's optimizer.
        keys: of the state per parameter, `step` included where the optimizer counts steps.
        parameters: leaf per name.
        state: `name.key` to state tensor; `name.stepped` (uint8, on the CPU) tells whether the state exists.
    """

    def __init__(
        self, name: str, arguments: Mapping[str, Any], keys: tuple[str, ...],
        parameters: Mapping[str, nn.Parameter], state: Mapping[str, Tensor],
    ) -> None:  # fmt: skip
        self.parameters, self.state, self.keys = parameters, state, keys
        self.optimizer = make_optimizer(name, arguments, parameters.items(), 0.0)

    def __call__(self, grads: Mapping[str, Tensor], lr: float) -> None:
        """Step the parameters that have a gradient, with this learning rate."""
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
        self.optimizer.step()
        for name in first:
            for key in self.keys:
                self.state[f"{name}.{key}"].copy_(self.optimizer.state[self.parameters[name]][key])
            self.state[f"{name}.stepped"].fill_(1)
        for parameter in self.parameters.values():
            parameter.grad = None
        self.optimizer.state.clear()
