"""Losses as sums of terms, so that uneven micro-batches weigh exactly what they hold.

A loss function takes `(output, target)` of one micro-batch and returns `(sum of terms, number of terms)`. The
batch's loss is the sum over micro-batches divided by the number of terms of the *whole* batch, which must be
known at the first backward. A function may say it by an attribute `terms(target) -> int`; otherwise it is
called once per micro-batch on an output of zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sennit.errors import UserError
from sennit.program.spec import Spec
from sennit.program.template import leaves, map_tree

LossFunction = Callable[[Any, Any], tuple[Tensor, Any]]

PADDING = 0
"""Target index that `token_cross_entropy` leaves out."""


def cross_entropy(output: Tensor, target: Tensor) -> tuple[Tensor, int]:
    """Classification. output (N, classes) float, target (N,) int64; one term per row.

    Raises:
        UserError: other shapes or types, or a target that is no class.
    """
    if output.dim() != 2 or target.shape != output.shape[:1] or target.is_floating_point():
        raise UserError(
            f"cross_entropy wants output (N, classes) and whole numbers (N,) as target, got {Spec.of(output)} and "
            f"{Spec.of(target)}; change the head or what the data gives as y"
        )
    if (
        target.device.type == "cpu"
        and target.numel()
        and not 0 <= int(target.min()) <= int(target.max()) < output.shape[1]
    ):
        raise UserError(
            f"cross_entropy: the targets go from {int(target.min())} to {int(target.max())}, but the head gives "
            f"{output.shape[1]} classes, 0 to {output.shape[1] - 1}; make the head wider or number the classes from 0"
        )
    return F.cross_entropy(output.float(), target, reduction="sum"), target.numel()


def token_cross_entropy(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Sequences. output (N, T, vocabulary) float, target (N, T) int64; one term per token that is not padding.

    The padded terms are masked rather than left out by `ignore_index`, which has no deterministic CUDA kernel
    for two-dimensional targets.
    """
    flat = output.reshape(-1, output.shape[-1]).float()
    picked = F.log_softmax(flat, dim=-1).gather(1, target.reshape(-1, 1)).squeeze(1)
    kept = (target.reshape(-1) != PADDING).to(picked.dtype)
    return -(picked * kept).sum(), (target != PADDING).sum()


def smoothed_token_cross_entropy(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """`token_cross_entropy` with label smoothing 0.1, as translation models are trained."""
    logs = F.log_softmax(output.reshape(-1, output.shape[-1]).float(), dim=-1)
    picked = logs.gather(1, target.reshape(-1, 1)).squeeze(1)
    kept = (target.reshape(-1) != PADDING).to(picked.dtype)
    return -((0.9 * picked + 0.1 * logs.mean(dim=-1)) * kept).sum(), (target != PADDING).sum()


def mse(output: Tensor, target: Tensor) -> tuple[Tensor, int]:
    """Squared error; one term per element. output and target have one shape.

    Raises:
        UserError: they have not: torch would repeat one along the other and train for something else.
    """
    if output.shape != target.shape:
        raise UserError(
            f"mse wants a target of the output's shape, got {Spec.of(output)} and {Spec.of(target)}; squeeze what the "
            "head gives, or let the data give y in that shape"
        )
    return F.mse_loss(output.float(), target.to(torch.float32), reduction="sum"), target.numel()


def _rows(target: Tensor) -> int:
    return target.numel()


def _tokens(target: Tensor) -> int:
    return int((target != PADDING).sum())


cross_entropy.terms = _rows  # type: ignore[attr-defined]
mse.terms = _rows  # type: ignore[attr-defined]
token_cross_entropy.terms = _tokens  # type: ignore[attr-defined]
smoothed_token_cross_entropy.terms = _tokens  # type: ignore[attr-defined]

LOSSES: dict[str, LossFunction] = {
    "cross_entropy": cross_entropy,
    "token_cross_entropy": token_cross_entropy,
    "smoothed_token_cross_entropy": smoothed_token_cross_entropy,
    "mse": mse,
}


def told_terms(function: LossFunction, targets: Sequence[Any]) -> list[int] | None:
    """Number of loss terms of each micro-batch by what the function says of targets; None if it says nothing."""
    counter = getattr(function, "terms", None)
    return None if counter is None else [int(counter(target)) for target in targets]


def count_terms(function: LossFunction, targets: Sequence[Any], output: Any) -> list[int]:
    """Number of loss terms of each micro-batch.

    Args:
        targets: of all micro-batches of the batch.
        output: the network's output for any one of them; only its shape is used.
    """
    told = told_terms(function, targets)
    if told is not None:
        return told
    if len(targets) == 1:
        return [-1]  # the only micro-batch counts its own terms when it is there
    counts: list[int] = []
    reference = _first_rows(targets, output)
    for target in targets:
        rows = _row_count(target)
        fake = map_tree(lambda t, rows=rows: _resized(t, rows, reference), output)
        with torch.no_grad():
            counts.append(int(function(fake, target)[1]))
    return counts


def share_of_loss(function: LossFunction, output: Any, target: Any, counts: Sequence[int], micro_batch: int) -> Tensor:
    """Micro-batch `micro_batch`'s share of the batch's mean loss: its sum of terms over all terms of the batch.

    Raises:
        UserError: the function returned something else than `(sum, count)`, or counted differently than before.
    """
    result = function(output, target)
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], Tensor):
        raise UserError(
            f"loss function {_called(function)} must return (sum of loss terms, number of terms), got {result!r:.120}"
        )
    total, counted = result
    if total.dim() != 0:
        raise UserError(f"loss function {_called(function)} must return a scalar sum, got shape {list(total.shape)}")
    expected = counts[micro_batch]
    if expected < 0:
        return total / max(int(counted), 1)
    # to look at a count on a GPU is to wait for it, so there the one that was told is taken
    if not (isinstance(counted, Tensor) and counted.is_cuda) and int(counted) != expected:
        raise UserError(
            f"loss function {_called(function)} counted {int(counted)} terms in micro-batch {micro_batch}, but "
            f"{expected} when asked before the first backward; give it an attribute `terms(target) -> int` that is "
            "exact"
        )
    return total / max(sum(counts), 1)


def _called(function: LossFunction) -> str:
    return repr(getattr(function, "__name__", str(function)))


def _row_count(target: Any) -> int:
    tensors = [t for t in leaves(target) if isinstance(t, Tensor) and t.dim()]
    return tensors[0].shape[0] if tensors else 1


def _first_rows(targets: Sequence[Any], output: Any) -> int:
    shapes = {_row_count(t) for t in targets}
    leading = {t.shape[0] for t in leaves(output) if isinstance(t, Tensor) and t.dim()}
    for rows in sorted(shapes, reverse=True):
        if all(n % rows == 0 for n in leading):
            return rows
    return max(shapes)


def _resized(leaf: Any, rows: int, reference: int) -> Any:
    if not isinstance(leaf, Tensor) or not leaf.dim():
        return leaf.detach() if isinstance(leaf, Tensor) else leaf
    return leaf.new_zeros((leaf.shape[0] * rows // reference, *leaf.shape[1:]))
