"""`Reach`: memory of one process's GPU, read by another process.

    owner    block ── handle ──▶ opened by whoever reads: the same bytes
             write ── event ── handle ──▶ a stream of the reader waits for it, and copies the bytes out

Nothing here keeps a GPU busy until another process does its part, as a send does that meets its receive: what a stream
waits for has been launched before anybody is told of it. So a host may wait for its device whenever it has to, and so
may what waits without being asked: loading a kernel, getting memory, a capture.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.multiprocessing.reductions import reduce_tensor

Handle = Any
"""By which another process opens something. Can be pickled."""
Event = Any
Copy = Any
"""A copy under way."""


class Reach(Protocol):
    """What a channel asks of a GPU."""

    device: torch.device

    def block(self, nbytes: int) -> tuple[Tensor, Handle]:
        """New bytes on this GPU. They stay as long as this process does.

        Raises:
            Exception: whatever the system says if there is no room, or if it does not give its memory to others.
        """
        ...

    def open(self, handle: Handle) -> Tensor:
        """Another process's block. Raises whatever the system says if it cannot be reached."""
        ...

    def event(self) -> tuple[Event, Handle]:
        """Something that can be recorded again and again, each time when nobody waits for the last time any more."""
        ...

    def open_event(self, handle: Handle) -> Event: ...

    def write(self, into: Sequence[Tensor], source: Sequence[Tensor], event: Event) -> None:
        """Copy rows, behind all that has been computed, and record the event."""
        ...

    def read(self, source: Tensor, after: Event) -> tuple[Tensor, Copy]:
        """Start copying another process's bytes, once its event has come to pass, into new memory."""
        ...

    def done(self, copy: Copy) -> bool:
        """Whether it is over."""
        ...

    def use(self, into: Tensor, copy: Copy) -> None:
        """What is computed from now on sees what is copied."""
        ...

    def finish(self, copy: Copy) -> None:
        """Wait until it is over."""
        ...


class CudaReach:
    """CUDA's handles for processes of one host; the GPU of the other may be the same one."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.reading, self.computing = torch.cuda.Stream(device), torch.cuda.current_stream(device)

    def block(self, nbytes: int) -> tuple[Tensor, Handle]:
        block = torch.empty(nbytes, dtype=torch.uint8, device=self.device)
        return block, reduce_tensor(block)

    def open(self, handle: Handle) -> Tensor:
        # as memory of this device, which reaches the other's: to copy from another device takes the host longer, and to
        # open memory there starts CUDA on it once more, which takes memory
        rebuild, arguments = handle
        place = list(inspect.signature(rebuild).parameters).index("storage_device")
        return rebuild(*arguments[:place], self.device.index, *arguments[place + 1 :])

    def event(self) -> tuple[Event, Handle]:
        event = torch.cuda.Event(interprocess=True)
        event.record(self.computing)  # it has a handle from then on
        return event, event.ipc_handle()

    def open_event(self, handle: Handle) -> Event:
        # of this device, whichever the other process is on: opened as one of the other's, it was never waited for
        return torch.cuda.Event.from_ipc_handle(self.device, handle)

    def write(self, into: Sequence[Tensor], source: Sequence[Tensor], event: Event) -> None:
        # not `torch.cat`, which takes longer where one tensor is much larger than the others: an embedding, say
        torch._foreach_copy_(list(into), list(source))  # pyright: ignore[reportPrivateImportUsage]
        event.record(self.computing)

    def read(self, source: Tensor, after: Event) -> tuple[Tensor, Copy]:
        with torch.cuda.stream(self.reading):
            into = torch.empty(source.shape, dtype=source.dtype, device=self.device)
            self.reading.wait_event(after)
            into.copy_(source, non_blocking=True)
        return into, self.reading.record_event()

    def done(self, copy: Copy) -> bool:
        return copy.query()

    def use(self, into: Tensor, copy: Copy) -> None:
        self.computing.wait_event(copy)
        into.record_stream(self.computing)  # it came from the memory of another stream

    def finish(self, copy: Copy) -> None:
        copy.synchronize()
