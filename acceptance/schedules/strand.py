"""A long chain of blocks, for virtual devices: what is computed does not matter."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import sennit as sn


class Strand(sn.ModelSpace):
    """`depth` blocks of `candidates` linear layers: (B, 2) to (B, 2)."""

    def __init__(self, depth: int = 16, candidates: int = 12) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            *(sn.LayerChoice([nn.Linear(2, 2) for _ in range(candidates)]) for _ in range(depth))
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x)


class Points:
    """Nothing to learn."""

    def __init__(self, n: int = 64, split: str = "train") -> None:
        self.x = torch.zeros(n, 2)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        return self.x[i], i % 2
