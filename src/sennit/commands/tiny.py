"""Space and data of the self-test in `sennit doctor`: what placement could get wrong, small."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import sennit as sn


class Layer(nn.Module):
    """Linear map, BatchNorm, dropout, residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.map, self.norm, self.drop = nn.Linear(width, width), nn.BatchNorm1d(width), nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(torch.relu(self.norm(self.map(x))))


class Tiny(sn.ModelSpace):
    """(rows, 16) to (rows, 4); 81 networks."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            *[sn.LayerChoice([Layer(width), nn.Linear(width, width), nn.Identity()]) for _ in range(4)]
        )
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x))


class Noise(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """64 random points with random classes."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(64, 16, generator=generator)
        self.y = torch.randint(0, 4, (64,), generator=generator)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.x[i], self.y[i]
