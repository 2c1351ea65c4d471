"""A step whose weight gradient depends on how often its backward is called."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import sennit as sn
from tests.runtime.chain import CLASSES, WIDTH


class Product(torch.autograd.Function):
    """x * w."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, w = ctx.saved_tensors
        ctx.calls = getattr(ctx, "calls", 0) + 1
        return grads[0] * w, (grads[0] * x).sum(0) * ctx.calls


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(WIDTH))

    def reset_parameters(self) -> None:
        nn.init.ones_(self.w)

    def forward(self, x: Tensor) -> Tensor:
        return Product.apply(x, self.w)  # type: ignore[no-any-return]


class Odd(sn.ModelSpace):
    """(B, D) to (B, CLASSES)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = sn.LayerChoice([nn.Linear(WIDTH, WIDTH), nn.Tanh()])
        self.odd = Scale()
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.odd(self.first(x)))
