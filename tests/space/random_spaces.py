"""Spaces drawn from a seed: nested choices of every kind, shared labels, modules in two slots."""

from __future__ import annotations

import random

from torch import Tensor, nn

import sennit as sn


class RandomSpace(sn.ModelSpace):
    """A tree of choices. Shared labels always have the same options, as they must."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.draw = random.Random(seed)
        self.reused: list[nn.Module] = []
        self.top = nn.Sequential(*[self.grow(3) for _ in range(self.draw.randint(1, 3))])
        self.draw = None  # type: ignore[assignment]

    def grow(self, depth: int) -> nn.Module:
        kind = self.draw.choice("leaf leaf list dict repeat sequence shared again".split() if depth else ["leaf"])
        if kind == "list":
            return self.kept(sn.LayerChoice([self.grow(depth - 1) for _ in range(self.draw.randint(1, 3))]))
        if kind == "dict":
            names = self.draw.sample(["mlp", "conv", "skip"], self.draw.randint(1, 3))
            return self.kept(sn.LayerChoice({name: self.grow(depth - 1) for name in names}))
        if kind == "repeat":
            low = self.draw.randint(0, 1)
            high = self.draw.randint(max(low, 1), 2)
            return self.kept(sn.Repeat(lambda _: self.grow(depth - 1), (low, high)))
        if kind == "sequence":
            return nn.Sequential(*[self.grow(depth - 1) for _ in range(2)])
        if kind == "shared":  # the same options at every place, so no nested choices
            return sn.LayerChoice([nn.Linear(3, 3), nn.Identity()], label=self.draw.choice("st"))
        if kind == "again" and self.reused:
            return self.draw.choice(self.reused)
        return nn.Linear(3, 3)

    def kept(self, module: nn.Module) -> nn.Module:
        self.reused.append(module)
        return module

    def forward(self, x: Tensor) -> Tensor:
        return self.top(x)
