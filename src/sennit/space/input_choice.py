"""`InputChoice`: some of several tensors, combined."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from sennit.errors import SpaceError
from sennit.space.choice import Choice, Option

REDUCTIONS = ("sum", "mean", "concat", "none")


class InputChoice(Choice):
    """`n_chosen` of `n_candidates` tensors. An arch holds the sorted indices.

    It is called with one list: `self.pick = sn.InputChoice(3)`, `self.pick([a, b, c])`. A step that only feeds inputs
    which were not chosen is not run at all.

    Args:
        n_candidates: how many tensors the list has.
        n_chosen: how many of them are used.
        reduction: `"sum"` (left fold), `"mean"`, `"concat"` (dimension 1) or `"none"` (a list).
        label: see `Choice`.

    Raises:
        SpaceError: counts that do not fit, an unknown reduction, or a call with another number of tensors.
    """

    def __init__(self, n_candidates: int, n_chosen: int = 1, reduction: str = "sum", label: str | None = None) -> None:
        super().__init__(label)
        if not 1 <= n_chosen <= n_candidates:
            raise SpaceError(f"1 <= n_chosen <= n_candidates must hold, got {n_chosen=} and {n_candidates=}")
        if reduction not in REDUCTIONS:
            raise SpaceError(f"reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")
        self.n_candidates = n_candidates
        self.n_chosen = n_chosen
        self.reduction = reduction

    def options(self) -> tuple[Option, ...]:
        return tuple(combinations(range(self.n_candidates), self.n_chosen))

    def parse(self, value: Any) -> Option:
        indices = [value] if isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(indices, list | tuple) or not all(type(i) is int for i in indices):
            raise self.refuse(value)
        option = tuple(sorted(indices))
        if len(set(option)) != self.n_chosen or len(option) != self.n_chosen:
            raise self.refuse(value)
        if not all(0 <= i < self.n_candidates for i in option):
            raise self.refuse(value)
        return option

    def forward(self, inputs: Sequence[Tensor]) -> Any:
        if len(inputs) != self.n_candidates:
            raise SpaceError(
                f"InputChoice {self.label!r} has n_candidates={self.n_candidates} but was called with {len(inputs)} "
                "tensors"
            )
        option = self.selected()
        assert isinstance(option, tuple)
        chosen = [inputs[i] for i in option]
        if self.reduction == "none":
            return chosen
        if len(chosen) == 1:
            return chosen[0]
        if self.reduction == "concat":
            return torch.cat(chosen, dim=1)
        total = chosen[0]
        for tensor in chosen[1:]:
            total = total + tensor
        return total if self.reduction == "sum" else total / len(chosen)

    def extra_repr(self) -> str:
        return f"{self.n_candidates}, n_chosen={self.n_chosen}, reduction={self.reduction!r}, label={self.label!r}"
