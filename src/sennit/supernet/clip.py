"""Gradient clipping with a stated order of summation.

`torch.nn.utils.clip_grad_norm_` stacks norms and takes the norm of the stack, whose order of summation is the
kernel's. Across workers the norms arrive separately, so the order must be ours: a left fold over sorted names,
in float64, of the squares of the float32 norms (contract, rule 4).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Literal

import torch
from torch import Tensor

from sennit.errors import RecipeError

EPSILON = 1e-6
"""As in `clip_grad_norm_`."""


@dataclass(frozen=True)
class Clip:
    """`none`, `global:X` (one norm for the whole subnet) or `layer:X` (one norm per group)."""

    kind: Literal["none", "global", "layer"]
    limit: float = math.inf

    @staticmethod
    def parse(text: str) -> Clip:
        kind, _, number = text.partition(":")
        try:
            if text == "none":
                return Clip("none")
            if kind in ("global", "layer") and float(number) > 0:
                return Clip(kind, float(number))  # type: ignore[arg-type]
        except ValueError:
            pass
        raise RecipeError(f"clip must be 'none', 'global:X' or 'layer:X' with X > 0, got {text!r}")


def grad_norms(grads: Mapping[str, Tensor]) -> dict[str, float]:
    """Float32 norm of each gradient, as Python floats; one transfer for all of them."""
    return dict(zip(grads, stacked_norms(list(grads.values())).tolist(), strict=True)) if grads else {}


class Row:
    """Numbers of one tensor each, put side by side in memory that is used again.

    `torch.stack` looks at each tensor through a new view. For the norms of a subnet that takes the host of a GPU longer
    than to launch what computes them.
    """

    def __init__(self) -> None:
        self.places: list[Tensor] = []
        self.room = torch.empty(0)

    def of(self, numbers: list[Tensor]) -> Tensor:
        """All of them, until the next call. Of one device and type, at least one."""
        if len(numbers) > len(self.places):
            self.room = numbers[0].new_empty(2 * len(numbers))
            self.places = list(self.room.unbind())
        torch._foreach_copy_(self.places[: len(numbers)], numbers)  # pyright: ignore[reportPrivateImportUsage]
        return self.room[: len(numbers)]


def stacked_norms(grads: Sequence[Tensor], row: Row | None = None) -> Tensor:
    """Float32 norm of each gradient, in one tensor on their device: in `row`, or in memory of its own. At least one."""
    found = norms_of(grads)
    return torch.stack(found) if row is None else row.of(found)


def norms_of(grads: Sequence[Tensor]) -> list[Tensor]:
    """Float32 norm of each gradient, where it is.

    Those that are float32 and contiguous go together: on a GPU torch then takes two launches for all of them, with
    kernels whose sums for one tensor do not depend on what is beside it. Which those are depends on each gradient
    alone, so the norms of a subnet have the same bits whether one process asks for all or each worker for its own.
    """
    alike = [grad.dtype == torch.float32 and grad.is_contiguous() and bool(grad.numel()) for grad in grads]
    together = list(compress(grads, alike))
    found: list[Tensor] = list(torch._foreach_norm(together) if together else ())  # pyright: ignore[reportPrivateImportUsage]
    if len(found) < len(grads):
        given = iter(found)
        found = [next(given) if is_alike else _norm(grad) for grad, is_alike in zip(grads, alike, strict=True)]
    return found


def _norm(grad: Tensor) -> Tensor:
    """Float32 norm of one gradient. A complex number counts with both its parts."""
    if grad.is_complex():
        grad = torch.view_as_real(grad.resolve_conj())
    return torch.linalg.vector_norm(grad.float())


def fold_norms(norms: Mapping[str, float]) -> float:
    """Norm of all gradients together, from the norm of each, by sorted name."""
    total = 0.0
    for name in sorted(norms):
        total += norms[name] * norms[name]
    return math.sqrt(total)


def factor(limit: float, norm: float) -> float:
    """What to multiply gradients with so that `norm` becomes at most `limit`; 1.0 leaves them alone."""
    ratio = limit / (norm + EPSILON)
    return 1.0 if ratio >= 1.0 else ratio  # NaN stays NaN; min(1.0, NaN) would be 1.0


def scale_(grads: Iterable[tuple[Tensor, float]]) -> None:
    """Multiply each in place by its factor. A NaN factor is applied too: it must not pass unseen.

    Float32 ones go together: on a GPU one launch for all of them, with the product of `mul_` for each number.
    """
    tensors: list[Tensor] = []
    factors: list[float] = []
    for grad, by in grads:
        if by == 1.0:
            continue
        if grad.dtype == torch.float32:
            tensors.append(grad)
            factors.append(by)
        else:
            grad.mul_(by)
    if tensors:
        torch._foreach_mul_(tensors, factors)  # pyright: ignore[reportPrivateImportUsage]
