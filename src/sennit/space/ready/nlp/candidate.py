"""A candidate: one kind of layer inside one kind of block.

suffix      block
_res_ln     x + f(LayerNorm(x))     pre-norm
_res_post   LayerNorm(x + f(x))     post-norm
_ln         f(LayerNorm(x))         no residual
_res        x + f(x)                no norm

What is padding, a candidate works out from the source tokens: they are an input of the network, which every
worker has, where a mask would have to travel from block to block.

On device `meta`, where a space is recorded for its shapes, a candidate only says that it keeps the shape:
torch works out LayerNorm and others in Python there, at milliseconds each, and nlp.c0 has 4,608 candidates.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VARIANTS = ("_res_ln", "_res_post", "_ln", "_res")
"""Each makes another function of the same layer. A space of 24 × k candidates has the first k."""


class Candidate(nn.Module):
    """`layer` inside the block called `variant`, with dropout on what the layer returns.

    Attributes:
        reads_memory: it is called with the encoder's output as well.
    """

    reads_memory = False

    def __init__(self, layer: nn.Module, variant: str, d: int, dropout: float) -> None:
        super().__init__()
        self.layer = layer
        self.dropout = dropout
        self.residual = variant.startswith("_res")
        self.before = nn.LayerNorm(d) if variant.endswith("_ln") else None
        self.after = nn.LayerNorm(d) if variant == "_res_post" else None

    def forward(self, x: Tensor, source: Tensor | None = None) -> Tensor:
        """(rows, length, d) to the same; `source`: (rows, length) int64, in the encoder: 0 is padding."""
        if x.device.type == "meta":
            return torch.empty_like(x)
        keep = None if source is None else source.ne(0)
        return self.combined(x, self.layer(self.normed(x), keep))

    def normed(self, x: Tensor) -> Tensor:
        return x if self.before is None else self.before(x)

    def combined(self, x: Tensor, out: Tensor) -> Tensor:
        """What the block returns, given what the layer does."""
        out = F.dropout(out, self.dropout, self.training)
        out = x + out if self.residual else out.to(x.dtype)
        return out if self.after is None else self.after(out)


class CrossCandidate(Candidate):
    """A layer that reads the encoder's output; a layer of the own sequence may stand before it, with a
    residual."""

    reads_memory = True

    def __init__(self, layer: nn.Module, variant: str, d: int, dropout: float, first: nn.Module | None) -> None:
        super().__init__(layer, variant, d, dropout)
        self.first = first
        self.between = None if first is None else nn.LayerNorm(d)

    def forward(self, x: Tensor, memory: Tensor, source: Tensor) -> Tensor:  # type: ignore[override]
        """`memory`: (rows, source length, d); `source`: (rows, source length) int64, 0 is padding."""
        if x.device.type == "meta":
            return torch.empty_like(x)
        h, keep = self.normed(x), source.ne(0)
        if self.first is None or self.between is None:
            out = self.layer(h, memory, keep)
        else:
            own = self.first(h)
            out = own + self.layer(self.between(h + own), memory, keep)
        return self.combined(x, out)
