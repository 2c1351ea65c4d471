"""How fast bytes move: over PCIe to and from a GPU, alone and together, between GPUs, and within the host's memory."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

MIB = 1 << 20
REPEATS = 5


def measure_links(device: torch.device, size: int = 128 * MIB) -> dict[str, float]:
    """Bytes a second, by name; the best of a few copies of `size` bytes."""
    a, b = (torch.empty(size, dtype=torch.uint8) for _ in range(2))
    found = {"host to host": size / _best(lambda: b.copy_(a), lambda: None)}
    if device.type != "cuda":
        return found
    wait = torch.cuda.synchronize
    a, b = a.pin_memory(), b.pin_memory()
    there, back = (torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2))
    found["host to device"] = size / _best(lambda: there.copy_(a, non_blocking=True), wait)
    found["device to host"] = size / _best(lambda: b.copy_(back, non_blocking=True), wait)
    found["both at once, each"] = size / _both(a, there, back, b)
    for other in range(torch.cuda.device_count()):
        if other != there.get_device():
            far = torch.empty(size, dtype=torch.uint8, device=torch.device("cuda", other))
            found[f"device to device {other}"] = size / _best(lambda far=far: far.copy_(there, non_blocking=True), wait)
    return found


def _both(a: Tensor, there: Tensor, back: Tensor, b: Tensor) -> float:
    """Seconds of a copy in and one out at the same time, on streams of their own."""
    streams = [torch.cuda.Stream(there.device) for _ in range(2)]

    def copy() -> None:
        with torch.cuda.stream(streams[0]):
            there.copy_(a, non_blocking=True)
        with torch.cuda.stream(streams[1]):
            b.copy_(back, non_blocking=True)

    return _best(copy, torch.cuda.synchronize)


def _best(copy: Callable[[], object], wait: Callable[[], None]) -> float:
    laps: list[float] = []
    for _ in range(REPEATS):
        wait()
        t = time.perf_counter()
        copy()
        wait()
        laps.append(time.perf_counter() - t)
    return min(laps)
