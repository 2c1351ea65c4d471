"""Another program on the GPU: waits until LOSSES has so many lines, takes all memory that is free, and keeps it.

hog.py LOSSES LINES
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

LEAST = 2 << 20
"""What torch takes from the device at once, at least, in bytes."""


def main() -> None:
    losses, wanted = Path(sys.argv[1]), int(sys.argv[2])
    torch.cuda.set_device(0)
    held = [torch.empty(1, device="cuda")]
    print("there", flush=True)
    while wanted and not (losses.exists() and losses.read_bytes().count(b"\n") >= wanted):
        time.sleep(0.005)
    size = torch.cuda.mem_get_info()[0]
    while size >= LEAST:
        try:
            held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    print("full", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main()
