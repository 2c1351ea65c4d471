"""`Stopwatch`: device time of tasks. On a GPU the host is done long before the device, so events are timed there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Stopwatch:
    """Sums the time spent inside `timed`."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds = 0.0
        self.events: list[tuple[Any, Any]] = []

    @contextmanager
    def timed(self) -> Iterator[None]:
        if self.device.type == "cuda":
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            yield
            end.record()
            self.events.append((begin, end))
        else:
            start = time.perf_counter()
            yield
            self.seconds += time.perf_counter() - start

    def total(self) -> float:
        """Seconds so far. Waits for the device."""
        if self.events:
            torch.cuda.synchronize(self.device)
            self.seconds += sum(begin.elapsed_time(end) for begin, end in self.events) / 1e3
            self.events.clear()
        return self.seconds
