"""Static networks: model spaces without a choice, as two halves that torch's pipelining can take."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sennit as sn

WIDTH, LENGTH, CLASSES = 8, 6, 5


class Last(nn.Module):
    """(B, L, D) to (B, CLASSES)."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x.mean(1))


class Convolution(nn.Module):
    """(B, L, D) to (B, L, D), and leaves the strides of (B, D, L)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(WIDTH, WIDTH, 3, padding=1), nn.GroupNorm(2, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x.transpose(1, 2)))).transpose(1, 2)


class Attention(nn.Module):
    """(B, L, D) to (B, L, D)."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = nn.MultiheadAttention(WIDTH, 2, batch_first=True), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.inner(x, x, x, need_weights=False)[0])


class Static(sn.ModelSpace):
    """Modules one after the other; `first` and `second` are the halves."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = self.halves()

    def halves(self) -> tuple[nn.Module, nn.Module]:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


class Perceptron(Static):
    def halves(self) -> tuple[nn.Module, nn.Module]:
        first = nn.Sequential(nn.Linear(WIDTH, 16), nn.GELU(), nn.Linear(16, WIDTH), nn.LayerNorm(WIDTH))
        return first, nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), Last())


class Attentive(Static):
    def halves(self) -> tuple[nn.Module, nn.Module]:
        return nn.Sequential(Attention(), nn.Linear(WIDTH, WIDTH)), nn.Sequential(Attention(), Last())


class Convolved(Static):
    """The norms where it is cut leave contiguous tensors: torch's pipeline sends no others."""

    def halves(self) -> tuple[nn.Module, nn.Module]:
        first = nn.Sequential(nn.Linear(WIDTH, WIDTH), Convolution(), nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH))
        return first, nn.Sequential(nn.LayerNorm(WIDTH), Convolution(), nn.Linear(WIDTH, WIDTH), Last())


class Branches(nn.Module):
    """Reads its input in three places, so that three gradients are added where it came from."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.a(x)) * torch.sigmoid(self.b(x)) + self.c(x)


class Branched(Static):
    """Branches in one module are one step for us, and its sums are autograd's, as they are for torch."""

    def halves(self) -> tuple[nn.Module, nn.Module]:
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), Branches()), nn.Sequential(Branches(), Last())


class Opened(Static):
    """The same branches, written in the space itself: each call is a step of its own, and gradients of a value that
    several steps read are added in reverse program order, as autograd does."""

    def halves(self) -> tuple[nn.Module, nn.Module]:
        return nn.Linear(WIDTH, WIDTH), nn.ModuleList([Branches(), Last()])

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        branches, last = self.second[0], self.second[1]
        x = torch.tanh(branches.a(x)) * torch.sigmoid(branches.b(x)) + branches.c(x)
        return last(x)


class Dropped(Static):
    """Draws masks on both halves."""

    def halves(self) -> tuple[nn.Module, nn.Module]:
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5)), nn.Sequential(nn.Dropout(0.5), Last())


class Strided(Static):
    """Is cut where a tensor with the strides of another order passes."""

    def halves(self) -> tuple[nn.Module, nn.Module]:
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), Convolution()), nn.Sequential(Convolution(), Last())


NETS: dict[str, type[Static]] = {
    net.__name__: net for net in (Perceptron, Attentive, Convolved, Branched, Opened, Dropped, Strided)
}


class Data:
    """Random sequences and classes."""

    def __init__(self, n: int = 64, split: str = "train") -> None:
        made = torch.Generator().manual_seed(len(split))
        self.x = torch.randn(n, LENGTH, WIDTH, generator=made)
        self.y = torch.randint(0, CLASSES, (n,), generator=made)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        return self.x[i], self.y[i]
