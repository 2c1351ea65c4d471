"""`Edge`: how every tensor enters a step, in every engine.

One `backward()` through a whole network and a backward per step are different sums: autograd adds the uses of
a value in one buffer, in reverse order of use, and a step that uses it twice mixes with its neighbours. With
one Edge per (value, step) the sum inside a step is finished before it is added to the others, so both give the
same bits. The Edge also fixes what travelling would change: forward and gradient are contiguous and aligned.

    value ──▶ view ──▶ step            a node of its own in the graph: the sum of this step alone arrives there
              ▲ hook                   settles that sum on its way back
    value ───────────▶ step            if nobody else uses the value, its own node does that
          ▲ hook

A hook that finds nothing to do costs less than a backward written in Python, and it copies nothing. Small tensors
on a CPU are sliced instead (`COPIED`).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor

ALIGNMENT = {"cpu": 64, "cuda": 256, "meta": 1}
"""Bytes on which a tensor's first element must lie. Vector kernels treat the ends of unaligned rows apart."""

COPIED = 1 << 16
"""Bytes on a CPU up to which torch's own slice of the whole is taken, a view whose backward copies the gradient: the
same values in the same layout, and for small tensors less than a hook takes."""

_CPU = ALIGNMENT["cpu"]


def settled(tensor: Tensor) -> Tensor:
    """`tensor` itself if contiguous and aligned, else a copy that is."""
    tensor = tensor.contiguous()
    if tensor.numel() and tensor.data_ptr() % ALIGNMENT.get(tensor.device.type, 64):
        return tensor.clone(memory_format=torch.contiguous_format)
    return tensor


def enter(tensor: Tensor, alone: bool = False) -> Tensor:
    """`tensor` as a step may use it.

    Args:
        alone: this step is the only user of `tensor`, and what made it made nothing else. Then the sum of its uses is
            finished where it was made.
    """
    # written out for the CPU: it is done at every step
    good = tensor.is_cpu and tensor.is_contiguous() and not tensor.data_ptr() % _CPU
    placed = tensor if good else settled(tensor)
    if not (tensor.requires_grad and torch.is_grad_enabled()):
        return placed
    if tensor.is_cpu and tensor.dim() and tensor.nbytes <= COPIED:
        return placed[:]
    if placed is tensor and (not alone or tensor.is_leaf):  # hooks of a leaf stay with it, so it gets none
        placed = tensor.view_as(tensor)
    if placed._backward_hooks is not None:
        placed.register_hook(_settle)
        return placed
    # as `register_hook`, but with one dict for all: the node keeps it, and the tensor gives it back at once, since
    # whoever registers a hook of his own would add it to this one. A dict for each would set off Python's collector
    placed._backward_hooks = _HOOKS
    placed.grad_fn._register_hook_dict(placed)  # type: ignore[union-attr]
    placed._backward_hooks = None
    return placed


def _settle(grad: Tensor | None) -> Tensor | None:
    """A gradient settled; None for one that is, or that never came."""
    if grad is None or (grad.is_cpu and grad.is_contiguous() and not grad.data_ptr() % _CPU):
        return None
    return settled(grad)


_HOOKS: OrderedDict[int, Any] = OrderedDict({0: _settle})
