"""A chain whose first and last layer are one: a group of two stages, which every subnet uses."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from tests.runtime.chain import WIDTH, Chain, Data


class Back(nn.Module):
    """(B, D) to (B, D), by the weight of another layer."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.t())


class Tied(Chain):
    """(B, D) to (B, CLASSES)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(WIDTH, WIDTH)
        self.back = Back(self.stem.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.back(self.blocks(self.stem(x))))


class OneNorm(Chain):
    """One batch norm before the first block and after the last."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.norm(x))))


class SpoiltBatch(Data):
    """All samples of a subnet are no numbers, so all of its micro-batches show it."""

    def __init__(self, n: int = 97, split: str = "train", seq_id: int = 5) -> None:
        super().__init__(n, split)
        self.seq_id = seq_id

    def __getitem__(self, i: int) -> Any:
        x, y = super().__getitem__(i)
        return (x * float("nan") if not i else x), y

    def batch(self, seq_id: int, batch_size: int, seed: int) -> list[int]:
        return [0 if seq_id == self.seq_id else i + 1 for i in range(batch_size)]


class Spoilt(Data):
    """One of the points is none."""

    def __init__(self, n: int = 97, split: str = "train", spoilt: int = 0) -> None:
        super().__init__(n, split)
        self.spoilt = spoilt

    def __getitem__(self, i: int) -> Any:
        x, y = super().__getitem__(i)
        return (x * float("nan") if i == self.spoilt else x), y
