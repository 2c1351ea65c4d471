"""`CudaDevice`: slots on a GPU. Copies run on two streams of their own while the current stream computes.

    fetching   ──wait(former use)── H2D ── word ──▶ event ─┐
    computing  ────────────────────────────wait(event)─────┴─ layer ── step ── mark ─┐
    writing                                                        wait(mark) ── D2H ┴─▶ event ─▶ published by the host

The host waits for none of this but in `finish`, and for the word in `word()`. Memory of slots is allocated on the
computing stream and used on the others; it goes back to torch only when nothing is under way in it (`Pool` waits), so
`record_stream` is not needed. The host's memory is registered with CUDA (`memory/pinning.py`).

Where the system refuses that, the host waits for each copy before it goes on. The order of the streams is the same, and
each event is recorded behind its copy, so nothing is seen earlier than it would be; what is lost is that copies run
beside the host. No copy waits for another GPU: a stream waits here for what is computed on this one, and the computing
stream does not wait for messages that have not come (`runtime/reach.py`). CUDA would take pageable memory in an
asynchronous copy, too; whether that returns before it is done is up to the platform, and nothing to rely on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sennit.memory.device import Copy


class CudaDevice:
    """One GPU.

    Args:
        pinned: whether the host's memory is registered with CUDA.
    """

    def __init__(self, device: torch.device, pinned: bool = True) -> None:
        self.torch_device, self.pinned = device, pinned
        self.fetching, self.writing = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self.computing = torch.cuda.current_stream(device)
        """Of this thread. To ask for it each time takes as long as a launch."""
        self.waits: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()
        """Around each wait of the computing stream."""

    def room(self, nbytes: int) -> Tensor:
        """From what torch keeps for the fetching stream: nothing of the computing stream can have been there, so a copy
        need not wait for what is launched. It must not be given back while that uses it."""
        with torch.cuda.stream(self.fetching):
            return torch.empty(nbytes, dtype=torch.uint8, device=self.torch_device)

    def fetch(self, into: Tensor, source: Tensor, after: Sequence[Copy]) -> Copy:
        return self._copy(self.fetching, [into], [source], after)

    def write(self, into: Sequence[Tensor], source: Sequence[Tensor], after: Sequence[Copy]) -> Copy:
        return self._copy(self.writing, into, source, after)

    def _copy(
        self, stream: torch.cuda.Stream, into: Sequence[Tensor], source: Sequence[Tensor], after: Sequence[Copy]
    ) -> Copy:
        for event in after:
            stream.wait_event(event)
        with torch.cuda.stream(stream):
            for target, tensor in zip(into, source, strict=True):
                target.copy_(tensor, non_blocking=self.pinned)
        return stream.record_event()

    def word(self, flat: Tensor, copy: Copy) -> Callable[[], int]:
        """The word is copied back behind the fetch, so that what is told is what stood there, and no one else waits."""
        word = torch.empty(1, dtype=torch.int64, pin_memory=self.pinned)
        with torch.cuda.stream(self.fetching):
            word.copy_(flat[:8].view(torch.int64), non_blocking=self.pinned)
        there = self.fetching.record_event()

        def read() -> int:
            there.synchronize()
            return int(word.item())

        return read

    def mark(self) -> Copy:
        return self.computing.record_event()

    def use(self, copy: Copy) -> None:
        if copy.query():
            return
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record(self.computing)
        self.computing.wait_event(copy)
        end.record(self.computing)
        self.waits.append((begin, end))

    def done(self, copy: Copy) -> bool:
        return copy.query()

    def finish(self, copy: Copy) -> None:
        copy.synchronize()

    def stalled(self) -> float:
        seconds = 0.0
        while self.waits:
            begin, end = self.waits.popleft()
            end.synchronize()
            seconds += begin.elapsed_time(end) / 1e3
        return seconds
