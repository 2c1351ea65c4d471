"""Spaces and data of these tests, named in recipes as `nets.py:Name`."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sennit as sn
from sennit.supernet.keys import key_for


class Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = (
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.Linear(2 * width, width),
        )
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(self.down(F.gelu(self.up(self.norm(x)))))


class Conv(nn.Module):
    """Hands on a transposed tensor, and has BatchNorm."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, width, kernel, padding=kernel // 2)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.relu(self.norm(self.conv(x.transpose(1, 2)))).transpose(1, 2)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attend = nn.MultiheadAttention(width, heads, dropout=0.1, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.attend(y, y, y, need_weights=False)[0]


class Net(sn.ModelSpace):
    """The shape of the `digits` workload: x (N, 64) to logits (N, 10)."""

    def __init__(self, width: int = 16, depth: int = 4) -> None:
        super().__init__()
        self.stem = nn.Linear(8, width)
        self.blocks = nn.Sequential(
            *[sn.LayerChoice([Mlp(width), Conv(width, 3), Attention(width, 4), nn.Identity()]) for _ in range(depth)]
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x.view(x.shape[0], 8, 8)))
        return self.head(x.mean(1))


class Small(sn.ModelSpace):
    """Nine networks."""

    def __init__(self) -> None:
        super().__init__()
        self.a = sn.LayerChoice(
            [nn.Linear(64, 16), nn.Linear(64, 16, bias=False), nn.Sequential(nn.Linear(64, 16), nn.ReLU())]
        )
        deep = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 10))
        self.b = sn.LayerChoice([nn.Linear(16, 10), deep, nn.Linear(16, 10, False)])

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x))


class Winding(sn.ModelSpace):
    """Everything that makes freezing hard: skips, inputs to choose, depths, ties, a module in two slots,
    loose parameters and buffers, flags that follow the mode, sizes that follow the batch.
    """

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Linear(8, width)
        self.scale = nn.Parameter(torch.empty(width))
        self.register_buffer("shift", torch.empty(width))
        self.deep = sn.Repeat(lambda i: sn.LayerChoice({"mlp": Mlp(width), "conv": Conv(width, 3)}), (1, 3))
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.second.weight = self.first.weight
        self.shared = Mlp(width)
        self.again = self.shared
        self.fork = sn.LayerChoice([nn.Linear(width, width), sn.LayerChoice([nn.Identity(), nn.Tanh()])])
        self.pick = sn.InputChoice(3, n_chosen=2)
        self.head = nn.Linear(width, 10)

    def init(self, name: str, module: nn.Module) -> bool:
        if name == "":
            nn.init.normal_(self.scale)
            self.shift.normal_()
        return False

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x.reshape(x.shape[0], -1, 8))
        x = F.dropout(x, 0.2, self.training) * self.scale + self.shift
        deep = self.deep(x)
        left = self.second(torch.relu(self.first(deep)))
        right = self.again(self.shared(deep).transpose(0, 1).contiguous().transpose(0, 1))
        both = self.pick([left, right, self.fork(x)])
        joined = both + F.linear(both, self.first.weight)
        return self.head(joined.mean(1)) + x.new_zeros(x.shape[0], 1)


class TiedConv(sn.ModelSpace):
    """A weight in channels-last order that two steps read."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(4, 4, 3, padding=1).to(memory_format=torch.channels_last)
        self.two = nn.Conv2d(4, 4, 3, padding=1)
        self.two.weight = self.one.weight
        self.tail = sn.LayerChoice([nn.ReLU(), nn.Tanh()])

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(x.shape[0], 4, 4, 4)
        return self.tail(self.two(self.one(x))).flatten(1)[:, :10]


class Pair(sn.ModelSpace):
    """Inputs of two lengths that vary, by keyword: `{"source": (N, S), "target": (N, T)}`, to (N, T, 12)."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, width)
        self.mix = sn.LayerChoice([nn.Linear(width, width), nn.Identity()])
        self.out = nn.Linear(width, 12, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        context = self.mix(self.embed(source)).mean(1, keepdim=True)
        return self.out(self.embed(target) + context)


class Stubborn(sn.ModelSpace):
    """A step that loops over the rows of its batch."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = RowByRow()
        self.head = sn.LayerChoice([nn.Linear(64, 10), nn.Linear(64, 10, bias=False)])

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rows(x))


class RowByRow(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([row * 2 for row in x])


def _generator(purpose: str) -> torch.Generator:
    return torch.Generator().manual_seed(key_for(7, purpose))


class Points:
    """Ten noisy points in 64 dimensions."""

    SIZES: ClassVar = {"train": 200, "valid": 75, "test": 75}

    def __init__(self, split: str = "train", noise: float = 0.7) -> None:
        centres = torch.randn(10, 64, generator=_generator("centres"))
        n = self.SIZES[split]
        self.y = torch.arange(n) % 10
        self.x = centres[self.y] + noise * torch.randn(n, 64, generator=_generator(split))

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.x[i], self.y[i]


class Scored(Points):
    """With a score of its own."""

    modes: ClassVar = {"margin": "max"}

    def score(self, network: Any, device: torch.device) -> dict[str, float]:
        top = network(self.x.to(device)).topk(2, dim=-1).values
        return {"margin": float((top[:, 0] - top[:, 1]).mean())}


class Sentences:
    """Pairs of three lengths, batched by length."""

    def __init__(self, split: str = "train") -> None:
        self.n = 60 if split == "train" else 26
        generator = _generator("sentences" + split)
        self.pairs = []
        for i in range(self.n):
            source = torch.randint(1, 12, (3 + i % 3,), generator=generator)
            self.pairs.append((source, torch.randint(0, 12, (4 + i % 2,), generator=generator)))

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        source, target = self.pairs[i]
        return {"source": source, "target": target}, target

    def batch(self, number: int, batch_size: int, seed: int) -> list[int]:
        kind = number % 6
        alike = [i for i in range(self.n) if i % 6 == kind]
        start = number // 6 * batch_size % len(alike)
        return alike[start : start + batch_size]
