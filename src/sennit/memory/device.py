"""`Device`: memory apart from the host store's, and copies between the two that go on while it computes.

`HostDevice` is the host itself: slots are other memory of the same kind, and copies are done at once. With it the whole
path of slots, eviction and prediction runs, and is tested, without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

Copy = Any
"""A copy under way, as the device knows it."""


class Device(Protocol):
    """Where slots are. What `fetch` and `write` are told to come `after` are copies, and marks of `mark`."""

    torch_device: torch.device

    def room(self, nbytes: int) -> Tensor:
        """Memory that is kept, and may be fetched into at once."""
        ...

    def fetch(self, into: Tensor, source: Tensor, after: Sequence[Copy]) -> Copy:
        """Start copying host bytes into a slot."""
        ...

    def write(self, into: Sequence[Tensor], source: Sequence[Tensor], after: Sequence[Copy]) -> Copy:
        """Start copying bytes of slots to the host: one copy, under way until all have come."""
        ...

    def word(self, flat: Tensor, copy: Copy) -> Callable[[], int]:
        """Reads the first word of a slot as a copy has brought it. To be asked for before anything else is started."""
        ...

    def mark(self) -> Copy:
        """Done when all is done that has been computed so far."""
        ...

    def use(self, copy: Copy) -> None:
        """What is computed from now on sees the copy. The host need not wait for that."""
        ...

    def done(self, copy: Copy) -> bool:
        """Whether the bytes have arrived."""
        ...

    def finish(self, copy: Copy) -> None:
        """Wait until they have."""
        ...

    def stalled(self) -> float:
        """Seconds since the last call for which the device waited in `use`; what the host waits, its caller sees."""
        ...


class HostDevice:
    """Copies at once."""

    def __init__(self) -> None:
        self.torch_device = torch.device("cpu")

    def room(self, nbytes: int) -> Tensor:
        return torch.empty(nbytes, dtype=torch.uint8)

    def fetch(self, into: Tensor, source: Tensor, after: Sequence[Copy]) -> Copy:
        into.copy_(source)
        return None

    def write(self, into: Sequence[Tensor], source: Sequence[Tensor], after: Sequence[Copy]) -> Copy:
        for target, tensor in zip(into, source, strict=True):
            target.copy_(tensor)
        return None

    def word(self, flat: Tensor, copy: Copy) -> Callable[[], int]:
        return lambda: int(flat[:8].view(torch.int64).item())

    def mark(self) -> Copy:
        return None

    def use(self, copy: Copy) -> None:
        pass

    def done(self, copy: Copy) -> bool:
        return True

    def finish(self, copy: Copy) -> None:
        pass

    def stalled(self) -> float:
        return 0.0
