"""Modules that hang hooks on what they are given."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import sennit as sn
from tests.runtime.chain import CLASSES, WIDTH

SIDE = 12
"""With a batch of some dozens, a value is too large to be entered by a slice."""


class Turned(torch.autograd.Function):
    """Its gradient lies channels-last."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.tanh(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return (grad * 0.7).contiguous(memory_format=torch.channels_last)


def by_its_norm(grad: Tensor) -> Tensor:
    """A sum that depends on how the numbers lie; enlarged, so that its last bit is seen."""
    return grad * (1 + 0.5 * torch.sin(1e7 * (grad / grad.abs().max()).sum().double())).float()


class Hooked(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.requires_grad:
            x.register_hook(by_its_norm)
        return Turned.apply(x)  # type: ignore[no-any-return]


class AtItsNode(nn.Module):
    """The hook is at the node of the graph that made the input, where nobody can see it."""

    def forward(self, x: Tensor) -> Tensor:
        if x.grad_fn is not None:
            x.grad_fn.register_prehook(lambda grads: tuple(None if g is None else by_its_norm(g) for g in grads))
        return Turned.apply(x)  # type: ignore[no-any-return]


class Net(sn.ModelSpace):
    """(B, WIDTH) to (B, CLASSES)."""

    def __init__(self, at_node: bool = False) -> None:
        super().__init__()
        self.first = sn.LayerChoice([nn.Linear(WIDTH, WIDTH * SIDE * SIDE), nn.Linear(WIDTH, WIDTH * SIDE * SIDE)])
        self.conv = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.hooked = AtItsNode() if at_node else Hooked()
        self.other = nn.Conv2d(WIDTH, WIDTH, 1)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(self.first(x).view(-1, WIDTH, SIDE, SIDE))
        return self.head((self.hooked(x) + self.other(x)).mean((2, 3)))


class Halved(nn.Module):
    """Half of the gradient goes back through what it makes."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        if y.requires_grad:
            y.register_hook(lambda grad: grad * 0.5)
        return y  # type: ignore[no-any-return]


class Reading(nn.Module):
    """Half of the gradient goes back through what it is given."""

    def forward(self, x: Tensor) -> Tensor:
        if x.requires_grad:
            x.register_hook(lambda grad: grad * 0.5)
        return torch.tanh(x)


class FromTheStart(sn.ModelSpace):
    """(B, WIDTH) to (B, CLASSES). Nobody wants a gradient of what its first layers are given.

    Args:
        by: who hangs a hook on what the first layers make: they themselves, or the layer that reads it.
    """

    def __init__(self, by: str) -> None:
        super().__init__()
        maker = Halved if by == "maker" else nn.Sequential
        self.first = sn.LayerChoice([maker(nn.Linear(WIDTH, WIDTH)), maker(nn.Linear(WIDTH, WIDTH, bias=False))])
        self.second = nn.Tanh() if by == "maker" else Reading()
        self.third = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.third(self.second(self.first(x)))))
