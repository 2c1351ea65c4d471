"""Drawing a large space's initial values by several processes, with the bits of one.

Each module draws under a key of its own, so who draws is of no matter, if no two write the same tensor and none keeps
anything in Python that another would see. That is known of torch's own modules and of sennit's, not of a user's.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from sennit.space.model_space import ModelSpace
from sennit.space.names import unique_tensors

T = TypeVar("T")

Draw = tuple[str, nn.Module]
"""A module and its path, whose own `reset_parameters` is to be called."""


class AtOnce(Protocol):
    """Results of functions that are called in processes of their own, and share memory with this one."""

    def __call__(self, functions: Sequence[Callable[[], T]], /) -> list[T]: ...


MANY = 1 << 28
"""Bytes that take long enough (a second is some hundred MB) to start processes for."""

KNOWN = ("torch.nn.", "sennit.")
"""Packages whose modules write nothing but tensors of their own and below, when they draw."""


def reset_of(module: nn.Module) -> Callable[[], Any] | None:
    """What gives a module its initial values."""
    reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
    return reset if callable(reset) else None


def independent(space: nn.Module, draws: Sequence[Draw]) -> bool:
    """Whether nothing but tensors tells whether one module has been drawn before another."""
    own = isinstance(space, ModelSpace) and type(space).init is not ModelSpace.init
    return not own and all(
        type(module).__module__.startswith(KNOWN) and "reset_parameters" not in vars(module)
        for _, module in draws
        if reset_of(module) is not None
    )


def parts_of(draws: Sequence[Draw], most: int) -> list[list[Draw]]:
    """Up to `most` parts of about the same number of bytes. Modules that write the same tensors, a parent what is its
    child's or two what is tied, are in one part, in their order."""
    leader: dict[int, int] = {}

    def find(i: int) -> int:
        while leader.setdefault(i, i) != i:
            i = leader[i]
        return i

    first: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for i, (_, module) in enumerate(draws):
        if reset_of(module) is None:
            continue
        sizes[i] = 0
        for tensor in (*module.parameters(), *module.buffers()):
            if (other := first.setdefault(id(tensor), i)) == i:
                sizes[i] += tensor.nbytes
            leader[find(i)] = find(other)
    together: dict[int, list[int]] = {}
    for i in sizes:
        together.setdefault(find(i), []).append(i)
    parts: list[tuple[int, list[int]]] = [(0, []) for _ in range(most)]
    for members in sorted(together.values(), key=lambda members: -sum(sizes[i] for i in members)):
        at = min(range(most), key=lambda k: parts[k][0])
        parts[at] = parts[at][0] + sum(sizes[i] for i in members), parts[at][1] + members
    return [[draws[i] for i in sorted(members)] for _, members in parts if members]


def cores() -> int:
    """How many processes are worth their while: memory is filled no faster by more."""
    return min(16, len(os.sched_getaffinity(0)))


class Block:
    """Memory for a space's tensors that forked processes share while they draw; `settle` gives each its own."""

    def __init__(self, space: nn.Module) -> None:
        self.places: dict[str, int] = {}
        size = 0
        for name, tensor in unique_tensors(space).items():
            self.places[name] = size
            size += -(-_span(tensor) // 256) * 256
        self.memory = mmap.mmap(-1, max(size, mmap.PAGESIZE))

    def allocate(self, name: str, like: Tensor) -> Tensor:
        """Memory of a tensor, for `initialise`."""
        if not like.numel():
            return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device="cpu")
        flat = torch.frombuffer(
            self.memory, dtype=like.dtype, count=_span(like) // like.dtype.itemsize, offset=self.places[name]
        )
        return flat.as_strided(like.shape, like.stride())

    def settle(self, space: nn.Module) -> None:
        """Give each tensor memory of its own, and the block's back on the way: there may be no room for both."""
        freed = 0
        for name, tensor in unique_tensors(space).items():
            own = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
            tensor.data = own.copy_(tensor.detach())
            end = (self.places[name] + _span(own)) // mmap.PAGESIZE * mmap.PAGESIZE
            if end - freed >= MANY:
                self.memory.madvise(mmap.MADV_REMOVE, freed, end - freed)
                freed = end


def _span(tensor: Tensor) -> int:
    """Bytes from the first element to the last."""
    if not tensor.numel():
        return 0
    return (1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))) * tensor.dtype.itemsize
