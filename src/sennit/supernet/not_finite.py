"""What can be true of a loss that is not finite: a spoilt batch, a bad beginning, or steps that are too large."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sennit.errors import UserError
from sennit.program.template import leaves

if TYPE_CHECKING:
    from sennit.recipe import Recipe

SPOILT = (
    "Its batch holds numbers that are not finite ({where}), so no rate of learning helps: mend the data set, or what "
    "augments it"
)
AT_FIRST = (
    "No optimizer step has changed anything yet, so lr and clip have no part in it: look at the initial values "
    "(reset_parameters, or init of the space), the scale of the data (largest number of x: {largest}) and the loss "
    "(a logarithm or a quotient of 0){precision}"
)
NARROW = ", and at precision = {!r}: try 'fp32'"


def advice(recipe: Recipe, seq_id: int, micro_batch: int, bulk: int = 1) -> str:
    """What to look at where the loss of a micro-batch is not finite.

    Its batch is loaded once more: it is the same wherever it is loaded.

    Args:
        bulk: subnets per optimizer step.
    """
    try:
        built = recipe.built
        x, y = built.micro_batches(built.batches[seq_id])[micro_batch]
    except UserError:
        return _of_steps(recipe, seq_id)
    found = [(name, *counts) for name, tree in (("x", x), ("y", y)) for counts in _not_finite(tree)]
    spoilt = [f"{count:,} of {of:,} in {name}" for name, count, of in found]
    if spoilt:
        return SPOILT.format(where=", ".join(spoilt))
    if any(recipe.lr_of(earlier) for earlier in range(seq_id // bulk * bulk)):
        return _of_steps(recipe, seq_id)
    narrow = "" if recipe.precision == "fp32" else NARROW.format(recipe.precision)
    return AT_FIRST.format(largest=f"{_largest(x):.3g}", precision=narrow)


def _of_steps(recipe: Recipe, seq_id: int) -> str:
    clip = 'set clip = "global:1.0"' if recipe.clip == "none" else f"lower clip = {recipe.clip!r}"
    lr = f"{recipe.lr_of(max(seq_id - 1, 0)):.3g}"
    return f"Lower lr ({lr} in the step before), or {clip}; that is another recipe, for a run with another --out"


def _floats(tree: Any) -> Iterator[Tensor]:
    return (t for t in leaves(tree) if isinstance(t, Tensor) and t.is_floating_point() and t.numel())


def _not_finite(tree: Any) -> Iterator[tuple[int, int]]:
    """Of each tensor that holds such numbers, how many of how many."""
    for tensor in _floats(tree):
        if count := tensor.numel() - int(torch.isfinite(tensor).sum()):
            yield count, tensor.numel()


def _largest(tree: Any) -> float:
    numbers = [t for t in leaves(tree) if isinstance(t, Tensor) and t.numel() and not t.is_complex()]
    return max((float(t.abs().max()) for t in numbers), default=math.nan)
