"""A data set that is learned in a few steps: whether the first of 20 numbers add up to more than 0."""

from __future__ import annotations

import torch
from torch import Tensor


class Data:
    """64 examples: 20 numbers, and class 0 or 1."""

    def __init__(self, split: str = "train") -> None:
        g = torch.Generator().manual_seed(len(split))
        self.x = torch.randn(64, 20, generator=g)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.x[i], (self.x[i, :5].sum() > 0).long()
