"""`Edge`: how every tensor enters a step, in every engine.

One `backward()` through a whole network and a backward per step are different sums: autograd adds the uses of
a value in one buffer, in reverse order of use, and a step that uses it twice mixes with its neighbours. With
one Edge per (value, step) the sum inside a step is finished before it is added to the others, so both give the
same bits. The Edge also fixes what travelling would change: forward and gradient are contiguous, with the
strides of a new tensor, and aligned.

    value ──▶ view ──▶ step            APART: a node of its own in the graph, at which the sum of this step alone
              ▲ hook                   arrives; it is settled on its way back

    value ───────────▶ step            ALONE: nobody else uses the value, so its own node can do that
          ▲ hook

    value ─┬▶ view ──▶ step            FIRST, SECOND: two steps use what a step has made. The sum of the first is
         ▲ └─────────▶ step            finished at its view. Autograd takes the uses of the last reader first, so they
      hook                             are summed up before the first's sum is added. The whole is settled once, at the
                                       value: numbers are added one by one, so it does not matter how they lay. (With
                                       many readers it costs time: each sum may be added to one that lies otherwise.)

A step of the user's own may look at the gradient of what it is given, by a hook, and must find its own sum, settled. So
where two steps use a value, only those of torch and sennit do without view and hook of their own.

A hook that finds nothing to do costs less than a backward written in Python, and it copies nothing; where nothing is
ever to be done, `Landing` leaves it out. (So each of two hangs one at the value: it cannot know whether the other
does.) A hook that the value's maker has hung on it must find a gradient that is settled, so such a value is entered
APART.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

ALIGNMENT = {"cpu": 64, "cuda": 256, "meta": 1}
"""Bytes on which a tensor's first element must lie. Vector kernels treat the ends of unaligned rows apart."""

_CPU, _GPU = ALIGNMENT["cpu"], ALIGNMENT["cuda"]

APART, ALONE, FIRST, SECOND = range(4)
"""How a step uses a value; see above. `FIRST` and `SECOND` are in program order."""


@lru_cache(maxsize=4096)
def strides_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Those of a new tensor."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def in_order(tensor: Tensor) -> bool:
    """Whether it is contiguous, by the strides that a new tensor has.

    A dimension of size 1 may have any stride, and kernels choose by it: a convolution of (N, C, 1, 1) takes strides
    (C, 1, C, C) for channels that come last, and so are those of what it makes.
    """
    return tensor.is_contiguous() and (1 not in tensor.shape or tensor.stride() == strides_of(tensor.shape))


def settled(tensor: Tensor) -> Tensor:
    """`tensor` itself if in order and aligned, else a copy that is."""
    if not in_order(tensor):
        tensor = tensor.clone(memory_format=torch.contiguous_format)
    if tensor.numel() and tensor.data_ptr() % ALIGNMENT.get(tensor.device.type, 64):
        return tensor.clone(memory_format=torch.contiguous_format)
    return tensor


def in_place(tensor: Tensor) -> Tensor:
    """As `settled`."""
    # written out: it is done at every step
    good = (
        (tensor.is_cpu or tensor.is_cuda)
        and tensor.is_contiguous()
        and (1 not in tensor.shape or tensor.stride() == strides_of(tensor.shape))
        and not tensor.data_ptr() % (_CPU if tensor.is_cpu else _GPU)
    )
    return tensor if good else settled(tensor)


def enter(
    tensor: Tensor, use: int = APART, known: bool = False, hooks: OrderedDict[int, Any] | None = None
) -> Tensor:  # fmt: skip
    """`tensor` as a step may use it.

    Args:
        use: `ALONE` if this step is the only user of `tensor`, `FIRST` or `SECOND` if one other is, too; these only if
            what made it made nothing else. Else `APART`.
        known: the step runs code of torch and sennit alone, which hangs no hooks on what it is given.
        hooks: `watched`, to be hung where the sum of this step alone arrives.
    """
    placed = in_place(tensor)
    if not (tensor.requires_grad and torch.is_grad_enabled()):
        return placed
    if use and (tensor.is_leaf or tensor._backward_hooks is not None):  # a leaf would keep the hook
        use = APART
    if use == FIRST or (known and use == SECOND):
        _settle_at(tensor, _HOOKS)
    if known and use >= FIRST:
        return tensor.view_as(tensor) if placed is tensor and use == FIRST else placed
    if placed is tensor and use != ALONE:
        placed = tensor.view_as(tensor)
    _settle_at(placed, _HOOKS if hooks is None else hooks)
    return placed


def _settle_at(tensor: Tensor, hooks: OrderedDict[int, Any]) -> None:
    """Settle the gradient that arrives at a tensor which has no hooks yet."""
    # as `register_hook`, but with one dict for all: the node keeps it, and the tensor gives it back at once, since
    # whoever registers a hook of his own would add it to this one. A dict for each would set off Python's collector
    tensor._backward_hooks = hooks
    tensor.grad_fn._register_hook_dict(tensor)  # type: ignore[union-attr]
    tensor._backward_hooks = None


def _settle(grad: Tensor | None) -> Tensor | None:
    """A gradient settled; None for one that is, or that never came."""
    if grad is None:
        return None
    placed = in_place(grad)
    return None if placed is grad else placed


_HOOKS: OrderedDict[int, Any] = OrderedDict({0: _settle})


def watched(note: Callable[[bool], None]) -> Callable[[Tensor | None], Tensor | None]:
    """A hook that settles, and tells whether the gradient was settled before; nothing of one that never came."""

    def settle(grad: Tensor | None) -> Tensor | None:
        placed = _settle(grad)
        if grad is not None:
            note(placed is None)
        return placed

    return settle
