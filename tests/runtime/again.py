"""Layers that their backward runs again (`torch.utils.checkpoint`), one of them in every subnet."""

from __future__ import annotations

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.runtime.chain import WIDTH, Chain


class Again(nn.Module):
    """(B, D) to (B, D)."""

    def __init__(self, norm: bool) -> None:
        super().__init__()
        self.layer = nn.Sequential(
            nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH) if norm else nn.Tanh(), nn.Dropout(0.2),
            nn.Linear(WIDTH, WIDTH), nn.Tanh(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.layer, x * 1, use_reentrant=False)  # type: ignore[no-any-return]


class Recomputed(Chain):
    """(B, D) to (B, CLASSES)."""

    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        self.stem = Again(norm)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)))
