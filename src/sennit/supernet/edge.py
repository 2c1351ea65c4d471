"""`Edge`: how every tensor enters a step, in every engine.

One `backward()` through a whole network and a backward per step are different sums: autograd adds the uses of
a value in one buffer, in reverse order of use, and a step that uses it twice mixes with its neighbours. With
one Edge per (value, step) the sum inside a step is finished before it is added to the others, so both give the
same bits. The Edge also fixes what travelling would change: forward and gradient are contiguous and aligned.

Small tensors on a CPU pass through torch's own slice of the whole instead, a view whose backward copies the gradient
to new memory: the same values in the same layout, for less than a backward written in Python takes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

ALIGNMENT = {"cpu": 64, "cuda": 256, "meta": 1}
"""Bytes on which a tensor's first element must lie. Vector kernels treat the ends of unaligned rows apart."""


COPIED = 1 << 20
"""Bytes on a CPU up to which copying a gradient costs less than asking, in Python, whether it has to be copied. On a
GPU it never does: the copy would be two more kernels, in every replay of a layer too."""


def settled(tensor: Tensor) -> Tensor:
    """`tensor` itself if contiguous and aligned, else a copy that is."""
    tensor = tensor.contiguous()
    if tensor.numel() and tensor.data_ptr() % ALIGNMENT.get(tensor.device.type, 64):
        return tensor.clone(memory_format=torch.contiguous_format)
    return tensor


class Edge(torch.autograd.Function):
    """Identity with a settled forward and a settled gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        placed = settled(tensor)
        return placed.view_as(placed)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return settled(grad)


def enter(tensor: Tensor) -> Tensor:
    """`tensor` as a step may use it."""
    if not (tensor.requires_grad and torch.is_grad_enabled()):
        return settled(tensor)
    if tensor.is_cpu and tensor.dim() and tensor.nbytes <= COPIED:  # written out: it is done at every step
        good = tensor.is_contiguous() and not tensor.data_ptr() % ALIGNMENT["cpu"]
        return tensor[:] if good else settled(tensor)[:]
    return Edge.apply(tensor)  # type: ignore[no-any-return]
