"""A module that holds a norm which it does not run, and looks at its statistics."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

import sennit as sn


class Reads(nn.Module):
    def __init__(self, norm: nn.BatchNorm1d) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.norm.running_mean, self.norm.running_var, training=False)


class Net(sn.ModelSpace):
    """(N, 6) to (N, 5)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6)
        self.choice = sn.LayerChoice([nn.Linear(6, 6), nn.Tanh()])
        self.reads, self.head = Reads(self.norm), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.reads(self.choice(self.norm(x))))
