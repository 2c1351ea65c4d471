"""A small space that has everything that has ever changed bits: used by the engine tests.

Tied weights (embedding and projection, one of them used twice in one step), one module in two slots with
BatchNorm, skips read twice, InputChoice, Repeat, dropout, transposed and channels-last convolutions, a shape used
later, several inputs and outputs, augmentation from three generators.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sennit as sn

VOCAB, LENGTH, WIDTH = 11, 6, 8


class Twice(nn.Module):
    """Uses its one weight twice, so that a tied use inside a step meets a tied use outside."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.linear(x, self.weight), self.weight.t())


class Conv(nn.Module):
    """Transposed, then channels-last: leaves strides that a next kernel could see. (B, L, D) to (B, L, D)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose1d(width, width, 3, padding=1)
        self.flat = nn.Conv2d(width, width, (1, 3), padding=(0, 1))
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(x.transpose(1, 2))
        image = y.unsqueeze(2).to(memory_format=torch.channels_last)
        y = self.norm(self.flat(image).squeeze(2))
        return x + y.transpose(1, 2)


class Mix(nn.Module):
    """Attention with dropout, two outputs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, dropout=0.2, batch_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.attention(x, x, x)[0])


class Pair(nn.Module):
    """Two inputs, two outputs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor, skip: Tensor) -> tuple[Tensor, Tensor]:
        return F.relu(self.a(x)) + skip, x * torch.sigmoid(self.b(skip))


class Sink(sn.ModelSpace):
    """ids (B, L) int64 and features (B, D) float to (logits (B, VOCAB), aux (B, D))."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.scale = nn.Parameter(torch.empty(width))
        self.shared_norm = nn.BatchNorm1d(width)
        self.first = sn.LayerChoice([Conv(width), Mix(width), nn.Sequential(nn.Linear(width, width), nn.Dropout(0.3))])
        self.pair = sn.LayerChoice({"pair": Pair(width), "swap": Swap()})
        self.rest = sn.Repeat(lambda i: sn.LayerChoice([Mix(width), Conv(width), nn.Identity()]), (1, 3))
        self.pick = sn.InputChoice(3, 2)
        self.twice = Twice(self.embed.weight)
        self.last = sn.LayerChoice([nn.Linear(width, width), nn.Tanh()])
        self.frozen = nn.Linear(width, width)
        self.frozen.weight.requires_grad_(False)
        self.register_buffer("place", torch.empty(LENGTH, width))

    def init(self, name: str, module: nn.Module) -> bool:
        if name:
            return False
        nn.init.ones_(self.scale)
        nn.init.normal_(self.place)
        return True

    def norm(self, x: Tensor) -> Tensor:
        return self.shared_norm(x.transpose(1, 2)).transpose(1, 2)

    def forward(self, ids: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        length = ids.shape[1]
        x = self.embed(ids) * self.scale + self.place[:length]
        skip = self.norm(x)
        x = self.first(skip)
        a, b = self.pair(x, skip)
        x = self.rest(a + F.dropout(skip, 0.1, self.training))
        x = self.norm(self.pick([x, b, skip]))
        x = self.last(x.view(ids.shape[0] * length, -1)).view(ids.shape[0], length, -1)
        pooled = x.mean(1) + self.frozen(features)
        return F.linear(pooled, self.embed.weight), pooled * features


class Fixed(sn.ModelSpace):
    """Two of its three networks have no weights but those that all subnets share."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.first = sn.LayerChoice([nn.Tanh(), nn.Identity(), nn.Linear(width, width)])

    def forward(self, ids: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        pooled = self.first(self.embed(ids)).mean(1)
        return F.linear(pooled, self.embed.weight), pooled * features


class Swap(nn.Module):
    """A second candidate for `pair`; reads one input twice, has no parameters."""

    def forward(self, x: Tensor, skip: Tensor) -> tuple[Tensor, Tensor]:
        return skip + x * 0.5, x


class Data:
    """Random pairs; augmentation draws from torch, numpy and Python."""

    def __init__(self, n: int = 97, split: str = "train") -> None:
        made = torch.Generator().manual_seed({"train": 1, "valid": 2, "test": 3}[split])
        self.ids = torch.randint(0, VOCAB, (n, LENGTH), generator=made)
        self.features = torch.randn(n, WIDTH, generator=made)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> Any:
        ids = torch.roll(self.ids[i], random.randrange(3))
        features = self.features[i] + 0.1 * torch.randn(WIDTH) + float(np.random.rand())
        return (ids, features), self.ids[i].sum() % VOCAB


def loss(output: tuple[Tensor, Tensor], target: Tensor) -> tuple[Tensor, int]:
    """Cross-entropy and a penalty on the second output; one term per row, known only when called."""
    logits, aux = output
    return F.cross_entropy(logits, target, reduction="sum") + 0.01 * aux.square().sum(), len(target)


def cycle(space: Any, seed: int) -> Any:
    """A sampler fed by results: goes on with the arch of lowest loss, one choice changed."""
    from sennit.space.structure import Structure
    from sennit.supernet.keys import below, key_for

    structure = Structure(space)
    best: tuple[float, dict[str, Any]] | None = None
    n = 0
    while True:
        arch = dict(structure.default() if best is None else best[1])
        labels = sorted(arch)
        label = labels[below(key_for(seed, "cycle", n), len(labels))]
        options = structure.sites[label].choice.options()
        arch[label] = structure.sites[label].choice.encode(options[below(key_for(seed, "to", n), len(options))])
        full = {
            **{k: structure.sites[k].choice.encode(structure.sites[k].choice.options()[0]) for k in structure.sites},
            **arch,
        }
        new = yield full
        for result in new or ():
            if best is None or result.loss < best[0]:
                best = (result.loss, result.arch)
        n += 1
