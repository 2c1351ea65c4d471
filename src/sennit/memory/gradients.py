"""`Gradients`: of one group by name, which know the piece they lie in.

Clipping and the optimizer both treat a piece as one tensor. It is looked for once: to ask ten tensors where they lie
takes the host about as long as to launch a kernel. A graph that gives the same memory each time says once how its
gradients lie (`Lying`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Lying:
    """How the gradients of a layer lie, where those of all its parameters are one piece.

    Attributes:
        names: of the parameters, each of which this step alone uses, in the order of the places.
        numbers: the piece.
        lent: the piece stays its owner's, who will write other numbers there.
    """

    names: tuple[str, ...]
    numbers: Tensor
    places: tuple[Place, ...]
    lent: bool


class Laid(dict[tuple[str, int], Tensor | None]):
    """Gradients of a layer by use. Not given other members.

    Args:
        lying: how they lie.
    """

    def __init__(self, grads: Mapping[tuple[str, int], Tensor | None], lying: Lying) -> None:
        super().__init__(grads)
        self.lying = lying


def as_gradients(grads: Mapping[str, Tensor]) -> Gradients:
    """Themselves, if they are that already."""
    return grads if isinstance(grads, Gradients) else Gradients(grads)
