"""What every network of the space has: embeddings, the encoder's last norm, the bridge, the projection."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sennit.supernet.drawless import drawless


class TokenEmbedding(nn.Module):
    """Tokens to vectors: a trained table × √d, plus sines of the position (Vaswani et al. 2017, section 3.5).

    Args:
        vocab: number of tokens; 0 is padding.
        d: even.
        max_length: most positions.
        dropout: on the sum.
    """

    positions: Tensor

    def __init__(self, vocab: int, d: int, max_length: int, dropout: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab, d))
        self.register_buffer("positions", torch.empty(max_length, d))
        self.dropout = nn.Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _, d = self.weight.shape
        nn.init.normal_(self.weight, std=d**-0.5)
        place = torch.arange(self.positions.shape[0], device=self.positions.device)[:, None]
        rate = torch.exp(torch.arange(0, d, 2, device=self.positions.device) * (-math.log(10000.0) / d))
        with torch.no_grad():
            self.positions[:, 0::2] = torch.sin(place * rate)
            self.positions[:, 1::2] = torch.cos(place * rate)

    def forward(self, tokens: Tensor) -> Tensor:
        """(rows, length) int64 to (rows, length, d)."""
        vectors = F.embedding(tokens, self.weight) * math.sqrt(self.weight.shape[1])
        return self.dropout(vectors + self.positions[: tokens.shape[1]])


@drawless
class Bridge(nn.Module):
    """Adds the mean of the encoder's output to each position of the decoder's input.

    So every network says something about its source, and its encoder gets a gradient, even if none of its
    decoder blocks happens to be one with cross-attention. It has no weights.
    """

    def forward(self, y: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        """`y`: (rows, length, d); `memory`: (rows, source length, d); `source`: (rows, source length)
        int64."""
        weight = source.ne(0).to(memory.dtype).unsqueeze(-1)
        return y + (memory * weight).sum(1, keepdim=True) / weight.sum(1, keepdim=True).clamp(min=1.0)


@drawless
class Projection(nn.Module):
    """(rows, length, d) to logits (rows, length, vocab), after a LayerNorm."""

    def __init__(self, d: int, vocab: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.weight = nn.Parameter(torch.empty(vocab, d))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.weight.shape[1] ** -0.5)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.norm(x), self.weight)
