"""A chain of blocks that write no buffers, with weights that two of its layers share."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

import sennit as sn
from tests.runtime.chain import CLASSES, WIDTH
from tests.runtime.tied import Back


class Block(nn.Module):
    """(B, D) to (B, D)."""

    def __init__(self, width: int, p: float) -> None:
        super().__init__()
        self.a, self.norm, self.drop = nn.Linear(width, width), nn.LayerNorm(width), nn.Dropout(p)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(self.norm(F.relu(self.a(x))))


class Normless(sn.ModelSpace):
    """(B, D) to (B, CLASSES)."""

    def __init__(self, depth: int = 6, width: int = WIDTH) -> None:
        super().__init__()
        self.stem = nn.Linear(width, width)
        self.blocks = nn.Sequential(
            *(sn.LayerChoice([Block(width, 0.0), Block(width, 0.3), nn.Linear(width, width)]) for _ in range(depth))
        )
        self.back = Back(self.stem.weight)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.back(self.blocks(self.stem(x))))
