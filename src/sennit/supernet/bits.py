"""Equality to the bit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sennit.program.template import leaves


def same_bits(one: Any, two: Any) -> bool:
    """Whether two nests of tensors have the same dtypes, shapes and bytes. NaN equals the same NaN."""
    a, b = ([leaf for leaf in leaves(tree) if isinstance(leaf, Tensor)] for tree in (one, two))
    if [(t.dtype, t.shape) for t in a] != [(t.dtype, t.shape) for t in b]:
        return False
    return all(torch.equal(_bytes(p), _bytes(q)) for p, q in zip(a, b, strict=True) if p.numel())


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
