"""Copies of modules that have run: what they keep of a forward is no reason not to copy them."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from torch import Tensor, nn

from sennit.program.template import leaves

M = TypeVar("M", bound=nn.Module)


def copied(module: M, memo: dict[int, Any] | None = None) -> M:
    """A deep copy.

    A module may keep what it made as an attribute, to look at it later (`self.attention = weights`). Torch does not
    copy tensors of a graph, so the copy keeps their values alone.

    Args:
        memo: as for `copy.deepcopy`.
    """
    memo = {} if memo is None else memo
    for held in module.modules():
        for tensor in leaves(list(vars(held).values())):
            if isinstance(tensor, Tensor) and not tensor.is_leaf:
                memo[id(tensor)] = tensor.detach().clone()
    return copy.deepcopy(module, memo)
