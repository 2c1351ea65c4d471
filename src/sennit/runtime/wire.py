"""What the tensors of a message are on their way: one piece, where they lie in one, and all pieces one row of bytes.

weight.grad │ bias.grad │ scale.grad        windows of one tensor, as a captured backward leaves them
└────────── sent as one ───────────┘        the receiver makes the same windows of what has come

│ piece 0 │  │ piece 1 │  │ piece 2 │       `laid_out`: each begins where a tensor of its own might
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from sennit.memory.parcel import Place, bundle, order_of, windows

Spec = tuple[tuple[int, ...], torch.dtype]
"""Shape and type."""

ALIGNED = 512
"""Bytes. A tensor of its own begins at a multiple of it on a GPU, and libraries choose kernels by where numbers lie."""


class Piece(NamedTuple):
    """A tensor that is sent: one of the message's, or what some are windows of.

    Attributes:
        spec: its own.
        places: of the windows, as they lie.
        order: of each that the message names, which window it is.
    """

    spec: Spec
    places: tuple[Place, ...] = ()
    order: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Described:
    """What a header says of a message's tensors.

    Attributes:
        specs: of each tensor; None where there is none.
        pieces: what is sent.
    """

    specs: tuple[Spec | None, ...]
    pieces: tuple[Piece, ...]

    def sent(self) -> list[Spec]:
        """Of what is sent, in order: tensors without numbers are not."""
        return [piece.spec for piece in self.pieces]

    def tensors(self, received: Sequence[Tensor], device: torch.device) -> list[Tensor | None]:
        """The message's tensors, from what `sent` says."""
        there: list[Tensor] = []
        for tensor, piece in zip(received, self.pieces, strict=True):
            found = windows(tensor, piece.places) if piece.places else [tensor]
            there += [found[i] for i in piece.order]
        given, tensors = iter(there), list[Tensor | None]()
        for spec in self.specs:
            if spec is not None and 0 in spec[0]:
                tensors.append(torch.empty(spec[0], dtype=spec[1], device=device))
            else:
                tensors.append(None if spec is None else next(given))
        return tensors


def described(tensors: Sequence[Tensor | None]) -> tuple[Described, list[Tensor]]:
    """What to say of tensors, and what to send."""
    specs = tuple(None if tensor is None else _spec(tensor) for tensor in tensors)
    pieces: list[Piece] = []
    held: list[Tensor] = []
    numbers = [tensor for tensor in tensors if tensor is not None and tensor.numel()]
    for _, row in groupby(numbers, key=lambda tensor: id(tensor if tensor._base is None else tensor._base)):
        beside = list(row)
        found = bundle(beside) if len(beside) > 1 else None
        order = None if found is None else order_of(beside, found[1])
        if found is not None and order is not None:
            pieces.append(Piece(_spec(found[0]), found[1], order))
            held.append(found[0])
        else:
            pieces += [Piece(_spec(tensor)) for tensor in beside]
            held += [tensor.resolve_conj().resolve_neg().contiguous() for tensor in beside]
    return Described(specs, tuple(pieces)), held


def _spec(tensor: Tensor) -> Spec:
    return tuple(tensor.shape), tensor.dtype


def laid_out(specs: Sequence[Spec]) -> tuple[list[Place], int]:
    """Where contiguous tensors lie one behind the other, and how many bytes that takes."""
    places: list[Place] = []
    end = 0
    for shape, dtype in specs:
        strides: list[int] = []
        numel = 1
        for n in reversed(shape):
            strides.append(numel)
            numel *= n
        places.append((end, shape, tuple(reversed(strides)), dtype))
        end += -(-numel * dtype.itemsize // ALIGNED) * ALIGNED
    return places, end


def rows(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Contiguous tensors as rows of numbers, and the rows of `flat` (uint8) where they lie if they are `laid_out`: all
    of one type, so that one launch copies them."""
    types = {tensor.dtype for tensor in tensors}
    dtype = types.pop() if len(types) == 1 else torch.uint8
    sources = [tensor.view(-1).view(dtype) for tensor in tensors]
    sizes: list[int] = []
    for row in sources:
        sizes += row.numel(), -row.nbytes % ALIGNED // dtype.itemsize
    return list(flat.view(dtype).split(sizes))[::2], sources
