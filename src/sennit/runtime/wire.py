"""What the tensors of a message are on their way: one piece, where they lie in one.

    weight.grad │ bias.grad │ scale.grad        windows of one tensor, as a captured backward leaves them
    └──────────── one message ─────────┘        the receiver makes the same windows of what has come

A message of NCCL takes each host about as long as five launches, whatever its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sennit.memory.parcel import Place, bundle, windows

Spec = tuple[tuple[int, ...], torch.dtype]
"""Shape and type."""


@dataclass(frozen=True)
class Described:
    """What a header says of a message's tensors.

    Attributes:
        specs: of each tensor; None where there is none.
        piece: of what they are windows of, if they are sent as one.
        places: of those that there are, in it.
    """

    specs: tuple[Spec | None, ...]
    piece: Spec | None = None
    places: tuple[Place, ...] = ()

    def sent(self) -> list[Spec]:
        """Of what is sent, in order: tensors without numbers are not."""
        if self.piece is not None:
            return [self.piece]
        return [spec for spec in self.specs if spec is not None and 0 not in spec[0]]

    def tensors(self, received: Sequence[Tensor], device: torch.device) -> list[Tensor | None]:
        """The message's tensors, from what `sent` says."""
        if self.piece is not None:
            given = iter(windows(received[0], self.places))
            return [None if spec is None else next(given) for spec in self.specs]
        given, found = iter(received), list[Tensor | None]()
        for spec in self.specs:
            if spec is not None and 0 in spec[0]:
                found.append(torch.empty(spec[0], dtype=spec[1], device=device))
            else:
                found.append(None if spec is None else next(given))
        return found


def described(tensors: Sequence[Tensor | None]) -> tuple[Described, list[Tensor]]:
    """What to say of tensors, and what to send."""
    specs = tuple(None if tensor is None else (tuple(tensor.shape), tensor.dtype) for tensor in tensors)
    held = [tensor for tensor in tensors if tensor is not None]
    found = bundle(held) if len(held) > 1 else None
    if found is not None and all(map(_lies, held, found[1])):
        piece, places = found
        return Described(specs, (tuple(piece.shape), piece.dtype), tuple(places)), [piece]
    return Described(specs), [tensor.contiguous() for tensor in held if tensor.numel()]


def _lies(tensor: Tensor, place: Place) -> bool:
    """Whether a window is the one of this place: they may be named in another order than they lie in."""
    return tensor.storage_offset() * tensor.itemsize == place[0] and tuple(tensor.shape) == place[1]
