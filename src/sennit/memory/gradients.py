"""`Gradients`: of one group by name, which know the piece they lie in.

Clipping and the optimizer both treat a piece as one tensor. It is looked for once: to ask ten tensors where they lie
takes the host about as long as to launch a kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import islice

import torch
from torch import Tensor

from sennit.memory.parcel import Place, bundle


class Gradients(dict[str, Tensor]):
    """By name. Not given other members once `piece` has been asked for."""

    @cached_property
    def piece(self) -> tuple[Tensor, tuple[Place, ...]] | None:
        """What `bundle` finds."""
        return bundle(list(self.values()))

    @property
    def together(self) -> list[Tensor]:
        """For what is done to every number alike: the piece, or all of them."""
        return list(self.values()) if self.piece is None else [self.piece[0]]

    def on(self, device: torch.device) -> Gradients:
        """On a device. All of a group are in one place, so one is asked."""
        on_gpu = device.type == "cuda"
        if all(grad.is_cuda == on_gpu for grad in islice(self.values(), 1)):
            return self
        return Gradients({name: grad.to(device, non_blocking=True) for name, grad in self.items()})


def as_gradients(grads: Mapping[str, Tensor]) -> Gradients:
    """Themselves, if they are that already."""
    return grads if isinstance(grads, Gradients) else Gradients(grads)
