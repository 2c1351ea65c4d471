"""Learning rate as a function of the subnet id, so that it does not depend on who steps when."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from sennit.errors import RecipeError


@dataclass(frozen=True, kw_only=True)
class LrSchedule:
    """A learning rate over seq ids.

    Attributes:
        name: "constant", "linear" (decay), "cosine" (decay) or "inverse_sqrt" (after warm-up).
        base: the highest rate, reached after warm-up.
        warmup: subnets over which the rate rises linearly from base/warmup to base.
        final: the rate at the last subnet of the recipe's `steps` ("linear" and "cosine").
    """

    name: Literal["constant", "linear", "cosine", "inverse_sqrt"]
    base: float
    warmup: int = 0
    final: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.base < math.inf or self.warmup < 0 or not 0 <= self.final < math.inf:
            raise RecipeError(
                f"lr: base >= 0, warmup >= 0 and final >= 0 must hold, got base={self.base}, "
                f"warmup={self.warmup}, final={self.final}"
            )


def lr_at(lr: float | LrSchedule, seq_id: int, steps: int) -> float:
    """Learning rate of subnet `seq_id` in a recipe of `steps` subnets. Past the end the last rate holds."""
    if not isinstance(lr, LrSchedule):
        return float(lr)
    if seq_id < lr.warmup:
        return lr.base * (seq_id + 1) / lr.warmup
    if lr.name == "constant":
        return lr.base
    if lr.name == "inverse_sqrt":
        return lr.base * math.sqrt(max(lr.warmup, 1) / (seq_id + 1))
    progress = min(1.0, (seq_id - lr.warmup) / max(1, steps - 1 - lr.warmup))
    if lr.name == "linear":
        return lr.base + (lr.final - lr.base) * progress
    return lr.final + (lr.base - lr.final) * 0.5 * (1.0 + math.cos(math.pi * progress))
