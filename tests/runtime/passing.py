"""Steps that give what they were given, and readers who hang hooks on that."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sennit as sn
from tests.runtime.chain import CLASSES, WIDTH


class Halves(nn.Module):
    """Scales the gradient of what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        if x.requires_grad:
            x.register_hook(lambda grad: grad * 0.5)
        return self.linear(x)


class Own(nn.Module):
    """Code of a user's, which gives what it is given."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class Passing(sn.ModelSpace):
    """(B, D) to (B, CLASSES). A value has two readers, one of them behind what passes it on: as `kind` says."""

    def __init__(self, kind: str, first: bool = False, depth: int = 3) -> None:
        super().__init__()
        self.kind, self.first = kind, first
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(depth)])
        self.same = nn.ModuleList([sn.LayerChoice([nn.Identity(), nn.Dropout(0.0)]) for _ in range(depth)])
        self.own = nn.ModuleList([Own() for _ in range(depth)])
        self.halves = nn.ModuleList([sn.LayerChoice([Halves(), Halves()]) for _ in range(depth)])
        self.head = nn.Linear(WIDTH, CLASSES)

    def passed(self, x: Tensor, i: int) -> Any:
        if self.kind == "own":
            return self.own[i](x)
        if self.kind == "float":
            return x.float()
        if self.kind == "contiguous":
            return x.contiguous()
        if self.kind == "dropout":
            return F.dropout(x, 0.0)
        return self.same[i](x)

    def forward(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if self.kind != "choice":
                x = self.same[i](x)
            if self.first:
                z = self.halves[i](self.passed(x, i))
                x = torch.tanh(x) + z
            else:
                y = torch.tanh(x)
                x = y + self.halves[i](self.passed(x, i))
        return self.head(x)


class Turned(sn.ModelSpace):
    """What passes a value on stands before layers whose gradients lie otherwise, as another subnet's does not."""

    def __init__(self, depth: int = 4) -> None:
        super().__init__()
        self.stem = nn.Linear(WIDTH, 4 * 4 * 4)
        candidates = lambda: [nn.Conv2d(4, 4, 3, padding=1), nn.Tanh(), nn.Identity()]  # noqa: E731
        self.blocks = nn.Sequential(*[sn.LayerChoice(candidates()) for _ in range(depth)])
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.blocks(self.stem(x).view(x.shape[0], 4, 4, 4))
        return self.head(self.norm(h.permute(0, 2, 3, 1)).mean((1, 2)))
