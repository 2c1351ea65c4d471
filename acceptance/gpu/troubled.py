"""`sennit` on a machine in trouble: `troubled.py TROUBLE sennit's arguments`. Workers inherit the trouble.

    full-once    in the middle, a forward and a backward find their device full after all their work is done
    full         from the middle on, every forward does
    unpinned     CUDA refuses to register the host's memory

The first two let torch's own allocator raise, by a limit on this process's part of the device; on the CPU, where there
is no limit, the error is made.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable
from typing import Any

import torch

from sennit.cli import main
from sennit.memory import cuda
from sennit.memory.pinning import address, pin
from sennit.runtime.share import REAL_PARTS

MIDDLE = 120
"""Calls of forwards before the device is full."""


class Full:
    """An executor whose device is full for a while.

    Args:
        for_good: from the middle on; else once, for a forward and for a backward.
    """

    def __init__(self, inner: Any, for_good: bool) -> None:
        self.inner, self.for_good = inner, for_good
        self.forwards = 0
        self.done: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def forward(self, *arguments: Any) -> Any:
        self.forwards += 1
        return self.call("forward", lambda: self.inner.forward(*arguments))

    def backward(self, *arguments: Any) -> Any:
        return self.call("backward", lambda: self.inner.backward(*arguments))

    def call(self, kind: str, work: Callable[[], Any]) -> Any:
        found = work()
        if self.forwards >= MIDDLE and (self.for_good or kind not in self.done):
            self.done.add(kind)
            fill(self.inner.device)
        return found


def fill(device: torch.device) -> None:
    """Ask for more than there is."""
    if device.type != "cuda":
        raise torch.OutOfMemoryError("the device of this rehearsal is full")
    torch.cuda.set_per_process_memory_fraction(0.0, device)
    try:
        torch.empty(1 << 30, dtype=torch.uint8, device=device)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


def refused(memory: mmap.mmap, device: torch.device) -> str:
    """CUDA refuses by itself: a page of the memory is registered already."""
    runtime: Any = torch.cuda.cudart()
    assert not int(runtime.cudaHostRegister(address(memory), mmap.PAGESIZE, 0))
    why = pin(memory, device)
    assert not int(runtime.cudaHostUnregister(address(memory)))  # a copy may not begin in it and end outside
    return why


if __name__ == "__main__":
    trouble, *arguments = sys.argv[1:]
    if trouble == "unpinned":
        cuda.pin = refused
    else:
        object.__setattr__(REAL_PARTS, "executor", lambda inner: Full(inner, trouble == "full"))
    sys.exit(main(arguments))
