"""A chain of blocks that share nothing: what asynchronous rules ask for."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sennit as sn

WIDTH, CLASSES = 6, 5


class Block(nn.Module):
    """(B, D) to (B, D)."""

    def __init__(self, width: int, p: float) -> None:
        super().__init__()
        self.a, self.norm, self.drop = nn.Linear(width, width), nn.BatchNorm1d(width), nn.Dropout(p)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(self.norm(F.relu(self.a(x))))


class Chain(sn.ModelSpace):
    """(B, D) to (B, CLASSES)."""

    def __init__(self, depth: int = 6, width: int = WIDTH) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            *(sn.LayerChoice([Block(width, 0.0), Block(width, 0.3), nn.Linear(width, width)]) for _ in range(depth))
        )
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x))


class Data:
    """Random points; the class is where the largest of the first coordinates stands."""

    def __init__(self, n: int = 97, split: str = "train") -> None:
        self.x = torch.randn(n, WIDTH, generator=torch.Generator().manual_seed(len(split)))

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        return self.x[i], self.x[i][:CLASSES].argmax()
