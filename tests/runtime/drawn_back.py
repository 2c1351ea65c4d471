"""Layers and a loss that draw random numbers in their backward."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.runtime.chain import WIDTH, Chain


class Stochastic(torch.autograd.Function):
    """Rounds its gradient up or down."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return torch.floor(grads[0] * 64 + torch.rand_like(grads[0])) / 64


def hooked(x: Tensor, hook: Callable[[Tensor], Tensor]) -> Tensor:
    if x.requires_grad:
        x.register_hook(hook)
    return x * 1


BACK: dict[str, Callable[[Tensor], Tensor]] = {
    "torch": lambda x: hooked(x, lambda grad: grad + 0.1 * torch.randn_like(grad)),
    "python": lambda x: hooked(x, lambda grad: grad * random.random()),
    "numpy": lambda x: hooked(x, lambda grad: grad * float(np.random.rand())),
    "function": Stochastic.apply,  # type: ignore[dict-item]
    "checkpoint": lambda x: checkpoint(F.dropout, x * 1, use_reentrant=False, preserve_rng_state=False),  # type: ignore[dict-item]
    "checkpoint that remembers": lambda x: checkpoint(F.dropout, x * 1, use_reentrant=False),  # type: ignore[dict-item]
}


class Layer(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer, self.kind = nn.Linear(WIDTH, WIDTH), kind

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(BACK[self.kind](x))  # type: ignore[no-any-return]


class Net(Chain):
    """(B, D) to (B, CLASSES)."""

    def __init__(self, kind: str = "") -> None:
        super().__init__()
        self.layer = Layer(kind) if kind else nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(self.blocks(x)))


def loss(output: Tensor, target: Tensor) -> tuple[Tensor, int]:
    return F.cross_entropy(BACK["torch"](output), target, reduction="sum"), len(target)
