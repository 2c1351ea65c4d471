"""Tensors that lie side by side, handled as one piece.

    │ weight │ bias │ scale │      a group, as `memory.layout` lays it out
    └────── parcel ─────────┘      one copy, one addition, one step of the optimizer

What is done to every number alike may be done to the whole piece at once, with the same bits and one launch on a GPU
where there were as many as there are tensors. Numbers between the tensors mean nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sennit.memory.layout import BOUNDARY

Place = tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype]
"""Of a tensor in a parcel: offset in bytes, shape, strides, type."""


WORD = 4
"""Bytes that are copied as one number: tensors of one type go together."""


@dataclass(frozen=True)
class Parcel:
    """Tensors that lie side by side in one storage.

    Attributes:
        members: which of the layer's tensors, by number.
        places: of each.
        nbytes: from the first byte to the last.
    """

    members: tuple[int, ...]
    places: tuple[Place, ...]
    nbytes: int

    def of(self, first: Tensor) -> Tensor:
        """Its bytes, in the storage in which its first member lies."""
        known = getattr(first, "_parcel", None)
        if known is not None and known[0] is self:
            return known[1]  # a leaf of a slot stays where it is as long as it lives
        start = first.storage_offset() * first.element_size() - self.places[0][0]
        found = torch.empty(0, dtype=torch.uint8, device=first.device)
        found.set_(first.untyped_storage(), start, (self.nbytes,), (1,))
        found = numbers(found)
        first._parcel = (self, found)  # type: ignore[attr-defined]
        return found


def parcels(tensors: Sequence[Tensor]) -> tuple[Parcel, ...]:
    """Tensors that lie side by side, together. What lies between two groups is left alone."""
    spans = [_span(tensor) for tensor in tensors]
    order = sorted(range(len(tensors)), key=lambda i: (tensors[i].untyped_storage().data_ptr(), spans[i]))
    rows: list[list[int]] = []
    for i in order:
        last = rows[-1][-1] if rows else None
        if last is None or not _beside(tensors[last], tensors[i], spans[last][1], spans[i][0]):
            rows.append([])
        rows[-1].append(i)
    found: list[Parcel] = []
    for members in sorted(rows):
        start = spans[members[0]][0]
        places = tuple(
            (spans[i][0] - start, tuple(tensors[i].shape), tuple(tensors[i].stride()), tensors[i].dtype)
            for i in members
        )  # fmt: skip
        found.append(Parcel(tuple(members), places, max(spans[i][1] for i in members) - start))
    return tuple(found)


def _beside(a: Tensor, b: Tensor, end: int, start: int) -> bool:
    """Whether `b`, from byte `start`, follows `a`, which ends at byte `end`, with nothing of others between."""
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() and start - end < BOUNDARY


def _span(tensor: Tensor) -> tuple[int, int]:
    """First byte and the one after the last, from the start of the storage."""
    size = tensor.element_size()
    first = int(tensor.storage_offset()) * size
    if not tensor.numel():
        return first, first
    return first, first + (1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))) * size


def views(flat: Tensor, places: Sequence[Place]) -> list[Tensor]:
    """Tensors inside the bytes `flat`, each a base of its own: autograd counts the changes of each."""
    storage, start = flat.untyped_storage(), flat.storage_offset() * flat.itemsize
    return [
        torch.empty(0, dtype=dtype, device=flat.device).set_(
            storage, (start + offset) // dtype.itemsize, shape, stride
        )
        for offset, shape, stride, dtype in places
    ]  # fmt: skip


def windows(flat: Tensor, places: tuple[Place, ...], lent: bool = False) -> list[Tensor]:
    """Tensors inside the bytes `flat`, as views of it. Each knows its place, which a view of it does not.

    Args:
        lent: `flat` stays its owner's, who will write other numbers there: whoever keeps the tensors copies them.
    """
    typed: dict[torch.dtype, tuple[Tensor, int, int]] = {}
    found: list[Tensor] = []
    for place in places:
        offset, shape, stride, dtype = place
        known = typed.get(dtype)
        if known is None:
            base = _as(flat, dtype)
            known = typed[dtype] = base, int(base.storage_offset()), dtype.itemsize
        base, start, size = known
        window = base.as_strided(shape, stride, start + offset // size)
        window._window = place  # type: ignore[attr-defined]
        found.append(window)
    owner = found[0]._base if len(typed) == 1 else None
    if owner is not None and owner.nbytes // owner.itemsize == flat.nbytes // owner.itemsize:
        owner._windows = (places[0][3], places)  # type: ignore[attr-defined]
    if lent:
        for window in found:
            window._base._lent = True  # type: ignore[union-attr]
    return found


def is_lent(tensor: Tensor) -> bool:
    """Whether it lies in what `windows` was told is lent."""
    return tensor._base is not None and getattr(tensor._base, "_lent", False)


def kept(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Themselves, where they are lent copies: in one piece, if they are in one."""
    if not any(map(is_lent, tensors)):
        return list(tensors)
    piece = bundle(tensors)
    order = None if piece is None else order_of(tensors, piece[1])
    if piece is None or order is None:
        return [tensor.clone() if is_lent(tensor) else tensor for tensor in tensors]
    own = windows(piece[0].clone(), piece[1])
    return [own[i] for i in order]


def order_of(tensors: Sequence[Tensor], places: tuple[Place, ...]) -> tuple[int, ...] | None:
    """Of each tensor, which of these places `windows` has made it for. None if one is another view of the bytes, as
    one is that has been transposed or conjugated since, or if they are not one for each place."""
    number = {id(place): i for i, place in enumerate(places)}
    order: list[int] = []
    for tensor in tensors:
        place: Place | None = getattr(tensor, "_window", None)
        if place is None or tensor.shape != place[1] or tensor.stride() != place[2]:
            return None
        order.append(number.pop(id(place), -1))
    return None if number or -1 in order else tuple(order)


def bundle(tensors: Sequence[Tensor]) -> tuple[Tensor, tuple[Place, ...]] | None:
    """What these are windows of, as numbers, and how they lie in it; None if they are not all windows of one thing.

    Numbers between them mean nothing: what is done to every number may be done to the whole at once.
    """
    base = tensors[0]._base if tensors else None
    if base is None or any(tensor._base is not base for tensor in tensors):
        return None
    known = getattr(base, "_windows", None)
    if known is None or len(known[1]) != len(tensors):
        return None
    return _as(base, known[0]), known[1]


def _as(flat: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes as numbers; what is left over at the end is left out."""
    if flat.itemsize == dtype.itemsize:
        return flat.view(dtype)
    raw = flat.view(torch.uint8)
    whole = raw.nbytes // dtype.itemsize * dtype.itemsize
    return (raw[:whole] if whole < raw.nbytes else raw).view(dtype)


def numbers(tensor: Tensor) -> Tensor:
    """The same bytes as whole numbers of one type, where they can be: tensors of one type are copied together."""
    return tensor.view(torch.int32) if tensor.dim() and tensor.shape[-1] * tensor.itemsize % WORD == 0 else tensor


class Targets:
    """Memory that is filled again and again: of `numbers`, all by one launch.

    Args:
        tensors: `numbers` of what is filled.
    """

    def __init__(self, tensors: list[Tensor]) -> None:
        self.tensors = tensors
        self.together = bool(tensors) and all(t.dtype == torch.int32 for t in tensors)

    def fill(self, sources: list[Tensor]) -> None:
        """Copy each source into its tensor."""
        if self.together:
            torch._foreach_copy_(self.tensors, sources)  # pyright: ignore[reportPrivateImportUsage]
            return
        for target, source in zip(self.tensors, sources, strict=True):
            target.copy_(source)


def copy(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Copy each source into its target, by one launch if all are `numbers` of one type."""
    Targets(targets).fill(sources)
