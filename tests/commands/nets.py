"""Spaces, data and other user code of these tests, named in recipes as `nets.py:Name`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sennit as sn


class Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down, self.drop = (
            nn.Linear(width, 2 * width),
            nn.Linear(2 * width, width),
            nn.Dropout(0.1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(self.down(F.gelu(self.up(x))))


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.map, self.norm = nn.Linear(width, width), nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.map(x))


class Net(sn.ModelSpace):
    """(rows, 8) to (rows, 4)."""

    def __init__(self, width: int = 8, depth: int = 4) -> None:
        super().__init__()
        self.stem = nn.Linear(8, width)
        self.blocks = nn.Sequential(
            *[sn.LayerChoice({"mlp": Mlp(width), "norm": Norm(width), "id": nn.Identity()}) for _ in range(depth)]
        )
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)))


class Points(torch.utils.data.Dataset):
    """Four clouds of points."""

    def __init__(self, split: str = "train", n: int = 96) -> None:
        offset = {"train": 0, "valid": 1, "test": 2}[split]
        generator = torch.Generator().manual_seed(offset)
        self.y = torch.arange(n) % 4
        self.x = torch.randn(n, 8, generator=generator) + 2 * F.one_hot(self.y, 8)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.x[i], self.y[i]
