"""Pinning: the host store's shared memory is registered with CUDA, so that copies run at full speed beside the host.

A system may refuse (too little memory that may be locked, a driver or sandbox without it). Then the host waits for each
copy: slower, the same bytes. It is told, since nobody would guess it from the bits.
"""

from __future__ import annotations

import contextlib
from mmap import mmap
from typing import Any

import torch


def pin(memory: mmap, device: torch.device) -> str:
    """Register shared memory with CUDA. Empty if that is done, else why the system refuses."""
    runtime: Any = torch.cuda.cudart()
    refused = runtime.cudaHostRegister(address(memory), len(memory), 0)
    if not int(refused):
        return ""
    forget_error(device)
    return f"cudaHostRegister of {len(memory):,} bytes: {runtime.cudaGetErrorString(refused)}"


def address(memory: mmap) -> int:
    return torch.frombuffer(memory, dtype=torch.uint8).data_ptr()


def forget_error(device: torch.device) -> None:
    """A refused call leaves its error behind in CUDA, and the next kernel would be blamed for it. So one is."""
    with contextlib.suppress(RuntimeError):
        torch.ones(1, device=device)
