"""`hop_s`: how long a value takes from one GPU to the next, from its last kernel to the first that reads it.

    GPU 0   add ─ send ┐             ┌▶ add ─ send ┐
    GPU 1              └▶ add ─ send ┘             └▶ …      so many times; nothing else is done

Two workers' channels, with all that a worker does between two tasks left out: headers, receives, launches. Hosts run
ahead as far as headers let them, as workers with nothing else to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sennit.runtime.channel import Message
from sennit.runtime.control import Line
from sennit.runtime.direct import DirectChannel
from sennit.runtime.forked import in_children
from sennit.runtime.reach import CudaReach
from sennit.runtime.transport import device_of

WARM, HOPS = 20, 200


def hop_s(nbytes: int, warm: int = WARM, hops: int = HOPS) -> float:
    """Seconds of a hop of so many bytes between GPUs 0 and 1, there and back taken alike."""
    lines = Line.pair("0", "1")
    ends: list[Callable[[], Any]] = [partial(_bounce, rank, lines[rank], nbytes // 4, warm, hops) for rank in (0, 1)]
    found = in_children(ends)
    for line in lines:
        line.close()
    return found[0]


def _bounce(rank: int, line: Line, numbers: int, warm: int, hops: int) -> float:
    device = device_of(rank, 2)
    torch.cuda.set_device(device)
    channel = DirectChannel(rank, {1 - rank: line}, CudaReach(device))
    value, began = torch.ones(max(1, numbers), device=device), 0.0
    for n in range(warm + hops):
        if n == warm:
            torch.cuda.synchronize(device)
            began = time.perf_counter()
        if not rank:
            channel.send(1, Message("F", n, 0, 0, 0, [(0, False)]), [value.add_(1)])
        value = _next(channel)
        if rank:
            channel.send(0, Message("F", n, 0, 0, 0, [(0, False)]), [value.add_(1)])
    torch.cuda.synchronize(device)
    seconds = (time.perf_counter() - began) / (2 * hops)
    assert rank or float(value[0]) == 1 + 2 * (warm + hops), "every hop counts one"
    channel.close()
    return seconds


def _next(channel: DirectChannel) -> Tensor:
    """The value, as soon as work that reads it may be launched."""
    while True:
        found = next(iter(channel.receive()), None) or channel.awaited()
        if found is not None:
            (value,) = found[1]
            assert value is not None
            return value
        channel.flush()
