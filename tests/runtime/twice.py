"""Modules and functions that give one tensor more than once, read by blocks of several workers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sennit as sn
from tests.runtime.chain import CLASSES, WIDTH, Block


class Pair(nn.Module):
    """One new tensor, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        h = F.relu(self.line(x))
        return h, [h]


class Through(nn.Module):
    """What came in, twice, and something else."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"a": x, "b": self.line(x), "c": x}


class Needy(Pair):
    """Does not run without data."""

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        if x.isnan().any():
            raise ValueError("nan")
        return super().forward(x)


class Twice(sn.ModelSpace):
    """(B, D) to (B, CLASSES)."""

    def __init__(self, kind: str = "pair") -> None:
        super().__init__()
        self.unit = {"pair": Pair, "through": Through, "needy": Needy, "function": nn.Identity}[kind]()
        self.kind = kind
        self.blocks = nn.ModuleList(sn.LayerChoice([Block(WIDTH, 0.3), nn.Linear(WIDTH, WIDTH)]) for _ in range(4))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        made = self.unit(x * 2)
        if self.kind == "function":
            a, b = torch.broadcast_tensors(made, made)
        elif self.kind == "through":
            a, b = made["a"] + made["b"], made["c"]
        else:
            a, (b,) = made
        y = self.blocks[0](a)
        y = self.blocks[1](y + b)
        y = self.blocks[2](y * a)
        return self.head(self.blocks[3](y - b) + a)
