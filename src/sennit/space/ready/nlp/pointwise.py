"""Layers that treat each position alone. Shapes: (rows, length, d)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class GatedLinear(nn.Module):
    """Two linear maps, one the gate of the other (Dauphin et al. 2017)."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.linear = nn.Linear(d, 2 * d)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        return F.glu(self.linear(x), dim=-1)


class FeedForward(nn.Module):
    """A perceptron with `expansion` × d hidden numbers and ReLU."""

    def __init__(self, d: int, expansion: int) -> None:
        super().__init__()
        self.up = nn.Linear(d, expansion * d)
        self.down = nn.Linear(expansion * d, d)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        return self.down(F.relu(self.up(x)))
