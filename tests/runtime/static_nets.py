"""Static networks: model spaces without a choice, in two or four parts that torch's pipelining can take."""

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


class Hidden(nn.Sequential):
    """(B, L, D) to (B, L, D); its output is no view."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(WIDTH, WIDTH), nn.ReLU())


class Static(sn.ModelSpace):
    """Parts one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(self.made())

    def made(self) -> list[nn.Module]:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x


class Perceptron(Static):
    def made(self) -> list[nn.Module]:
        first = nn.Sequential(nn.Linear(WIDTH, 16), nn.GELU())
        return [first, nn.Sequential(nn.Linear(16, WIDTH), nn.LayerNorm(WIDTH)), Hidden(), Last()]


class Attentive(Static):
    def made(self) -> list[nn.Module]:
        second = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH))
        return [Attention(), second, Attention(), Last()]


class Convolved(Static):
    """The norms where it is cut leave contiguous tensors: torch's pipeline sends no others."""

    def made(self) -> list[nn.Module]:
        convolutions = [nn.Sequential(nn.LayerNorm(WIDTH), Convolution(), nn.LayerNorm(WIDTH)) for _ in range(2)]
        return [Hidden(), *convolutions, nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), Last())]


class Branches(nn.Module):
    """Reads its input in three places, so that three gradients are added where it came from."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.a(x)) * torch.sigmoid(self.b(x)) + self.c(x)


class Branched(Static):
    """Branches in one module are one step for us, and its sums are autograd's, as they are for torch."""

    def made(self) -> list[nn.Module]:
        return [Hidden(), Branches(), Branches(), Last()]


class Opened(Static):
    """The same branches, written in the space itself: each call is a step of its own, and gradients of a value that
    several steps read are added in reverse program order, as autograd does."""

    def made(self) -> list[nn.Module]:
        return [nn.Linear(WIDTH, WIDTH), Branches(), Last()]

    def forward(self, x: Tensor) -> Tensor:
        first, branches, last = self.parts
        x = first(x)
        return last(torch.tanh(branches.a(x)) * torch.sigmoid(branches.b(x)) + branches.c(x))


class Dropped(Static):
    """Draws masks on both halves."""

    def made(self) -> list[nn.Module]:
        return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5)), nn.Sequential(nn.Dropout(0.5), Last())]


class Strided(Static):
    """Is cut where a tensor with the strides of another order passes."""

    def made(self) -> list[nn.Module]:
        return [nn.Sequential(nn.Linear(WIDTH, WIDTH), Convolution()), nn.Sequential(Convolution(), Last())]


class Viewed(Static):
    """Is cut behind layers whose outputs are views."""

    def made(self) -> list[nn.Module]:
        return [*(nn.Linear(WIDTH, WIDTH) for _ in range(3)), Last()]


NETS: dict[str, type[Static]] = {
    net.__name__: net for net in (Perceptron, Attentive, Convolved, Branched, Opened, Dropped, Strided, Viewed)
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
