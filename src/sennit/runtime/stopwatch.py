"""`Stopwatch`: device time of tasks. On a GPU the host is done long before the device, so events are timed there.

    host     anchor ── launch ── launch ──────── look: has it ended? ──▶ told
    device   anchor ───────── begin ▓▓▓ end

A GPU's laps are told when their end event is found to have passed, which nobody waits for. The anchor, one moment
seen by both, puts the device's times on the host's clock; it is taken anew at every cut, where the device is waited
for anyway, so that neither drift nor the float32 of `elapsed_time` adds up.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch


class Launching(NamedTuple):
    """What a host did for a lap, on the clock of `time.monotonic`.

    Attributes:
        begin: when it began to launch.
        seconds: until it was done; 0 where the host computes.
        waited: of these, seconds in which it launched nothing.
    """

    begin: float
    seconds: float
    waited: float


Then = Callable[[float, float, Launching], None]
"""Told start and end of a lap, on the clock of `time.monotonic`, and what the host did for it."""


class Lap:
    """What is timed.

    Attributes:
        then: told when it was.
        waited: seconds for which the host has waited in it.
    """

    __slots__ = ("then", "waited")

    def __init__(self) -> None:
        self.then: Then | None = None
        self.waited = 0.0


class Stopwatch:
    """Sums the time spent inside `timed`."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds = 0.0
        self.events: deque[tuple[Any, Any, Then | None, Launching]] = deque()
        self.spare: list[Any] = []
        """Events that have been looked at, to be recorded again."""
        if device.type == "cuda":
            # to ask for it at each event takes as long as a launch
            self.stream = torch.cuda.current_stream(device)
            self.anchor, self.anchored = self._now()

    @contextmanager
    def timed(self) -> Iterator[Lap]:
        lap = Lap()
        if self.device.type == "cuda":
            begin, end = self._event(), self._event()
            launched = time.monotonic()
            begin.record(self.stream)
            yield lap
            end.record(self.stream)
            host = Launching(launched, time.monotonic() - launched, lap.waited)
            self.events.append((begin, end, lap.then, host))
            self.tell()
        else:
            start = time.monotonic()
            yield lap
            end = time.monotonic()
            self.seconds += end - start
            if lap.then is not None:
                lap.then(start, end, Launching(start, 0.0, 0.0))

    def tell(self) -> None:
        """Tell of the laps that the device has ended. Does not wait."""
        while self.events and self.events[0][1].query():
            begin, end, then, host = self.events.popleft()
            seconds = begin.elapsed_time(end) / 1e3
            self.seconds += seconds
            if then is not None:
                start = self.anchored + self.anchor.elapsed_time(begin) / 1e3
                then(start, start + seconds, host)
            self.spare += begin, end

    def behind(self) -> int:
        """Laps that the device has not ended yet. Does not wait."""
        self.tell()
        return len(self.events)

    def total(self) -> float:
        """Seconds so far. Waits for the device."""
        if self.events:
            torch.cuda.synchronize(self.device)
            self.tell()
            self.anchor, self.anchored = self._now()
        return self.seconds

    def _event(self) -> Any:
        return self.spare.pop() if self.spare else torch.cuda.Event(enable_timing=True)

    def _now(self) -> tuple[Any, float]:
        """An event of an idle device, and when it was."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(self.stream)
        event.synchronize()
        return event, time.monotonic()
