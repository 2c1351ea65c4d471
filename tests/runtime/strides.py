"""A space whose values have dimensions of size 1 with strides that no new tensor has."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import sennit as sn
from tests.runtime.chain import CLASSES, WIDTH

CHANNELS, SIDE = 16, 8


class Stem(nn.Module):
    """(B, D) to (B, C, 8, 8)."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(WIDTH, CHANNELS * SIDE * SIDE)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x).view(-1, CHANNELS, SIDE, SIDE)


class Squeeze(nn.Module):
    """To (B, C, 1, 1), with strides (C, 1, C, C)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, SIDE)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x.contiguous(memory_format=torch.channels_last))


class Spread(nn.Module):
    """And back: its kernels run in the order of the strides that they find."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(CHANNELS, CHANNELS, SIDE)
        self.norm = nn.BatchNorm2d(CHANNELS)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.conv(x)))


class Strides(sn.ModelSpace):
    """(B, D) to (B, CLASSES)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Stem()
        self.down = nn.ModuleList([sn.LayerChoice([Squeeze(), Squeeze()]) for _ in range(2)])
        self.up = nn.ModuleList([sn.LayerChoice([Spread(), Spread()]) for _ in range(2)])
        self.head = nn.Linear(CHANNELS * SIDE * SIDE, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for down, up in zip(self.down, self.up, strict=True):
            h = up(down(h))
        return self.head(h.flatten(1))


class Mixed(sn.ModelSpace):
    """The same, of torch's own layers: some give gradients whose channels come last, some values are read twice."""

    def __init__(self, depth: int = 5) -> None:
        super().__init__()
        self.stem = Stem()
        self.layers = nn.ModuleList([sn.LayerChoice(self.candidates()) for _ in range(depth)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(CHANNELS) for _ in range(depth)])
        self.head = nn.Linear(CHANNELS * SIDE * SIDE, CLASSES)

    @staticmethod
    def candidates() -> list[nn.Module]:
        last = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1).to(memory_format=torch.channels_last)
        first = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        return [last, first, nn.Sequential(nn.AvgPool2d(3, 1, 1), nn.Dropout(0.2)), nn.Tanh()]

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            h = h + layer(norm(h))
        return self.head(h.flatten(1))
