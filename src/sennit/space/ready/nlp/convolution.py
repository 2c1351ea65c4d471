"""Convolutions along the sequence. Causal ones see the position itself and what is to the left.

Shapes: (rows, length, d). Padding is set to zero first, so that it does not reach into a sentence.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def spread(x: Tensor, kernel: int, causal: bool, keep: Tensor | None) -> Tensor:
    """(rows, length, d) as (rows, d, length + kernel - 1): zeros where a convolution of `kernel` sticks
    out."""
    if keep is not None:
        x = x * keep.unsqueeze(-1)
    left = kernel - 1 if causal else kernel // 2
    return F.pad(x.transpose(1, 2), (left, kernel - 1 - left))


class Convolution(nn.Module):
    """Standard convolution to d / `reduction` channels, ReLU, and a linear map back."""

    def __init__(self, d: int, kernel: int, reduction: int, causal: bool) -> None:
        super().__init__()
        self.kernel, self.causal = kernel, causal
        self.conv = nn.Conv1d(d, d // reduction, kernel)
        self.back = nn.Linear(d // reduction, d) if reduction > 1 else nn.Identity()

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        seen = self.conv(spread(x, self.kernel, self.causal, keep))
        return self.back(F.relu(seen).transpose(1, 2))


class SeparableConvolution(nn.Module):
    """One filter per channel, then a linear map over channels (Chollet 2017)."""

    def __init__(self, d: int, kernel: int, causal: bool) -> None:
        super().__init__()
        self.kernel, self.causal = kernel, causal
        self.depthwise = nn.Conv1d(d, d, kernel, groups=d)
        self.pointwise = nn.Linear(d, d)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        seen = self.depthwise(spread(x, self.kernel, self.causal, keep))
        return self.pointwise(F.relu(seen).transpose(1, 2))


class LightweightConvolution(nn.Module):
    """One filter per head, shared by its channels, made to sum to one by a softmax (Wu et al. 2019, equation
    5).

    It has heads × kernel weights and no linear map of its own.
    """

    def __init__(self, d: int, kernel: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.d, self.kernel, self.heads, self.causal = d, kernel, heads, causal
        self.weight = nn.Parameter(torch.empty(heads, kernel))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        filters = self.weight.softmax(-1)[:, None, :].expand(-1, self.d // self.heads, -1).reshape(self.d, 1, -1)
        return F.conv1d(spread(x, self.kernel, self.causal, keep), filters, groups=self.d).transpose(1, 2)
