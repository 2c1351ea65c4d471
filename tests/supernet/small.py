"""A small space, its data, and recipes over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import sennit as sn

HERE = str(Path(__file__).parent)
FILE = "small.py"


class Net(sn.ModelSpace):
    """Stem, three choices with dropout and statistics in them, head tied to nothing."""

    def __init__(self, width: int = 8, depth: int = 3, drop: float = 0.2) -> None:
        super().__init__()
        self.stem = nn.Linear(6, width)
        self.blocks = nn.Sequential(
            *[
                sn.LayerChoice(
                    [
                        nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Dropout(drop)),
                        nn.Sequential(nn.BatchNorm1d(width), nn.Linear(width, width, bias=False)),
                        nn.Identity(),
                    ]
                )
                for _ in range(depth)
            ]
        )
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)))


class Lines(sn.ModelSpace):
    """Only lines: plain PyTorch gives the same bits without any Edge."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(6, 8)
        self.blocks = nn.Sequential(*[sn.LayerChoice([nn.Linear(8, 8), nn.Linear(8, 8), nn.Tanh()]) for _ in range(2)])
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)))


class Points(torch.utils.data.Dataset[Any]):
    """30 noisy points; each visit of a sample is augmented at random, with torch, numpy and Python."""

    def __init__(self, split: str = "train", augment: bool = False) -> None:
        generator = torch.Generator().manual_seed(5)
        self.y = torch.arange(30) % 4
        self.x = torch.randn(30, 6, generator=generator) + self.y[:, None]
        self.augment = augment

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        import random

        import numpy as np

        x = self.x[index]
        if self.augment:
            x = x.flip(0) if random.random() < 0.5 else x
            x = x + torch.randn(6) * 0.1 + float(np.random.rand())
        return x, self.y[index]


def learner(space: nn.Module, seed: int) -> Any:
    """Goes on with the option of block 0 whose subnets had the lower mean loss."""
    seen: list[Any] = []
    step = 0
    while True:
        means = [[r.loss for r in seen if r.arch["blocks.0"] == o] for o in (0, 1)]
        best = 0 if not all(means) else min((0, 1), key=lambda o: sum(means[o]) / len(means[o]))
        first = best if step % 3 else step // 3 % 2
        seen += yield {"blocks.0": first, "blocks.1": step % 3, "blocks.2": (step + len(seen)) % 3}
        step += 1


def recipe(**changes: Any) -> sn.Recipe:
    given: dict[str, Any] = {
        "space": f"{FILE}:Net", "data": f"{FILE}:Points", "batch_size": 7, "steps": 12, "base": HERE,
        "optimizer": {"name": "adam"}, "lr": 0.05, "seed": 3,
    }  # fmt: skip
    return sn.Recipe(**{**given, **changes})
