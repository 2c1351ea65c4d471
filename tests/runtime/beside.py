"""Spaces whose programs another process cannot record for a worker, or not all of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import sennit as sn
from tests.runtime.chain import CLASSES, WIDTH


class Mark:
    """Equal to itself alone."""


MARK = Mark()


class Marked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, mark: object) -> Tensor:
        assert mark is MARK or callable(mark)
        return self.line(x)


class WithObject(sn.ModelSpace):
    """(B, D) to (B, CLASSES); hands an object to a unit."""

    mark: object = MARK

    def __init__(self) -> None:
        super().__init__()
        self.first = sn.LayerChoice([nn.Linear(WIDTH, WIDTH), nn.Tanh()])
        self.second = sn.LayerChoice([nn.Linear(WIDTH, WIDTH), nn.Tanh()])
        self.marked = Marked()
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.marked(self.second(self.first(x)), self.mark))


class WithFunction(WithObject):
    """Hands a function without a name of its own to a unit."""

    mark = staticmethod(lambda x: x)


@dataclass
class Mode:
    """Equal to its copy."""

    name: str


MODE = Mode("strong")


class ByMode(nn.Module):
    """Knows its mode by what it is, not by what it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, mode: Mode) -> Tensor:
        return self.line(x) * (2.0 if mode is MODE else 0.5)


class WithEqual(WithObject):
    """Hands an object to a unit that is equal to its copy."""

    mark = MODE

    def __init__(self) -> None:
        super().__init__()
        self.between = nn.Sequential(*[sn.LayerChoice([nn.Linear(WIDTH, WIDTH), nn.Tanh()]) for _ in range(6)])
        self.marked = ByMode()  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.between(x))


class Turned(sn.ModelSpace):
    """(B, D) to (B, CLASSES); every kind of torch function: with a name, of tensors, of attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = sn.LayerChoice([nn.Linear(WIDTH, WIDTH), nn.Tanh()])
        self.second = sn.LayerChoice([nn.Linear(WIDTH, WIDTH), nn.Tanh()])
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.first(x), self.second(x)
        return self.head((a.T + torch.sigmoid(b).mT).T * a.real[:, :WIDTH].clamp(min=-float("inf")) + b.float())


class Unfit(sn.ModelSpace):
    """(B, D) to (B, CLASSES): two of the four archs do not fit, and no arch that covers the space shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = sn.LayerChoice([nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH + 1)])
        self.second = sn.LayerChoice([nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH + 1, WIDTH)])
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.second(self.first(x)))
