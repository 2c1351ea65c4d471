"""Laps on a GPU: told once the device has ended them, on the host's clock, and without waiting. The GPU is a fake."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from sennit.runtime.stopwatch import Stopwatch


class Device:
    """A GPU whose clock runs from 1000 s, and which has ended all work up to `ended`."""

    def __init__(self) -> None:
        self.queued = self.ended = 1000.0
        self.waits = 0

    def event(self, enable_timing: bool) -> Event:
        assert enable_timing
        return Event(self)

    def wait(self, device: Any = None) -> None:
        self.waits += 1
        self.ended = self.queued


class Event:
    def __init__(self, device: Device) -> None:
        self.device, self.at = device, -1.0

    def record(self, stream: Any) -> None:
        assert stream == "stream"
        self.at = self.device.queued

    def query(self) -> bool:
        return self.at <= self.device.ended

    def synchronize(self) -> None:
        self.device.wait()

    def elapsed_time(self, later: Event) -> float:
        assert self.query() and later.query(), "as CUDA: an event that has not passed has no time"
        return (later.at - self.at) * 1e3


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device()
    monkeypatch.setattr(torch.cuda, "Event", device.event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "stream")
    monkeypatch.setattr(torch.cuda, "synchronize", device.wait)
    monkeypatch.setattr(time, "monotonic", lambda: 50.0 + device.ended)  # the host's clock is another one
    return device


def lap(clock: Stopwatch, gpu: Device, seconds: float, told: list[Any]) -> None:
    with clock.timed() as timed:
        timed.then = lambda start, end, *host: told.append((start - 1050.0, end - 1050.0))
        gpu.queued += seconds


def test_laps_are_told_when_the_device_has_ended_them(gpu: Device) -> None:
    clock = Stopwatch(torch.device("cuda"))
    waits, told = gpu.waits, []
    lap(clock, gpu, 2.0, told)
    gpu.queued += 1.0  # idle
    lap(clock, gpu, 3.0, told)
    assert not told
    gpu.ended = 1002.5
    clock.tell()
    assert told == [(0.0, 2.0)] and gpu.waits == waits
    assert clock.total() == 5.0 and told == [(0.0, 2.0), (3.0, 6.0)]
    with clock.timed():
        gpu.queued += 1.0
    assert clock.total() == 6.0 and len(told) == 2, "who sets nothing is told nothing"


def test_the_clocks_are_put_together_again_at_every_cut(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Stopwatch(torch.device("cuda"))
    told: list[Any] = []
    lap(clock, gpu, 1.0, told)
    monkeypatch.setattr(time, "monotonic", lambda: 50.25 + gpu.ended)  # it has drifted
    clock.total()
    lap(clock, gpu, 1.0, told)
    clock.total()
    assert told == [(0.0, 1.0), (1.25, 2.25)]


def test_a_lap_on_the_cpu_is_told_at_once() -> None:
    clock, told = Stopwatch(torch.device("cpu")), []
    before = time.monotonic()
    with clock.timed() as timed:
        timed.then = lambda *all: told.append(all)
    ((start, end, host),) = told
    assert before <= start <= end <= time.monotonic() and clock.total() == end - start
    assert host == (start, 0.0, 0.0), "the host computes, and launches nothing"


def test_how_long_the_host_has_launched_is_told(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    host      launch 10 .. 13       another 13 .. 14        of these it waits 1 and 0.5
    device    0 ▓▓▓▓▓ 5             5 ▓ 6
    """
    clock, told, now = Stopwatch(torch.device("cuda")), [], [10.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for host, device in ((3.0, 5.0), (1.0, 1.0)):
        with clock.timed() as timed:
            timed.then = lambda *all: told.append(all[2])
            now[0] += host
            timed.waited = 0.5 if told or host == 1.0 else 1.0
            gpu.queued += device
    clock.total()
    assert told == [(10.0, 3.0, 1.0), (13.0, 1.0, 0.5)]
