"""Attention over the own sequence and over the encoder's output.

Written out in matrix products and a softmax: each of them has a deterministic kernel on every device, in both
directions, and no backend is chosen by shape.

Shapes: (rows, length, d); heads split d.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def attend(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, dropout: float) -> Tensor:
    """softmax(q kᵀ / √size) v (Vaswani et al. 2017, equation 1).

    Args:
        q: (rows, heads, length, size); k, v: (rows, heads, other length, size).
        allowed: bool, broadcast to (rows, heads, length, other length); True where a query may look.
        dropout: share of the weights that are set to zero.
    """
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if allowed is not None:
        # a finite number: no NaN where nothing is allowed
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    return F.dropout(scores.softmax(-1), dropout) @ v


class SelfAttention(nn.Module):
    """Each position looks at the sequence; if `causal`, at itself and what is to the left.

    Args:
        d: numbers per position, divisible by `heads`.
        dropout: on the attention weights.
    """

    def __init__(self, d: int, heads: int, causal: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        """`keep`: (rows, length) bool, False at padding; not needed if causal, where padding is to the
        right."""
        rows, length, d = x.shape
        q, k, v = self.qkv(x).view(rows, length, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        allowed = None if keep is None else keep[:, None, None, :]
        if self.causal:
            allowed = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        mixed = attend(q, k, v, allowed, self.dropout if self.training else 0.0)
        return self.out(mixed.transpose(1, 2).reshape(rows, length, d))


class CrossAttention(nn.Module):
    """Each position looks at the encoder's output."""

    def __init__(self, d: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.q = nn.Linear(d, d)
        self.kv = nn.Linear(d, 2 * d)
        self.out = nn.Linear(d, d)

    def forward(self, x: Tensor, memory: Tensor, keep: Tensor) -> Tensor:
        """`memory`: (rows, source length, d); `keep`: (rows, source length) bool, False at padding."""
        rows, length, d = x.shape
        size = d // self.heads
        q = self.q(x).view(rows, length, self.heads, size).transpose(1, 2)
        k, v = self.kv(memory).view(rows, memory.shape[1], 2, self.heads, size).permute(2, 0, 3, 1, 4)
        mixed = attend(q, k, v, keep[:, None, None, :], self.dropout if self.training else 0.0)
        return self.out(mixed.transpose(1, 2).reshape(rows, length, d))
