"""Memory of one process's GPU as another process reads it."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest
import torch

from sennit.runtime.control import Line
from sennit.runtime.forked import in_children
from sennit.runtime.reach import CudaReach
from tests.gpus import apart, needs_gpu, needs_two_gpus

SIZE, TURNS = 1 << 22, 20


def next_of(line: Line) -> Any:
    while True:
        for said in line.receive():
            return said
        line.flush()
        time.sleep(0.0001)


def writer(line: Line, gpu: int) -> list[int]:
    """Fills its block with other numbers again and again, each time behind a kernel that takes long."""
    torch.cuda.set_device(gpu)
    reach = CudaReach(torch.device("cuda", gpu))
    block, handle = reach.block(SIZE)
    event, its = reach.event()
    line.send((handle, its))
    next_of(line)
    for n in range(TURNS):
        numbers = torch.full((SIZE,), n, dtype=torch.uint8, device=reach.device)
        torch.cuda._sleep(20_000_000)
        reach.write([block], [numbers], event)
        line.send(n)  # the host is far ahead of the device
        next_of(line)
    return []


def reader(line: Line, gpu: int) -> list[int]:
    """Numbers that it found and that were others."""
    torch.cuda.set_device(gpu)
    reach = CudaReach(torch.device("cuda", gpu))
    handle, its = next_of(line)
    source, event = reach.open(handle), reach.open_event(its)
    line.send("opened")
    wrong: list[int] = []
    for n in range(TURNS):
        assert next_of(line) == n
        into, copy = reach.read(source, event)
        reach.use(into, copy)
        seen = into.clone()  # launched before it is there
        reach.finish(copy)
        assert reach.done(copy)
        wrong += [n] * (not bool((seen == n).all()))
        line.send("read")
    return wrong


def differing(gpus: tuple[int, int]) -> list[int]:
    a, b = Line.pair("writer", "reader")
    return in_children([partial(writer, a, gpus[0]), partial(reader, b, gpus[1])])[1]


@pytest.mark.parametrize(
    "gpus", [pytest.param((0, 0), marks=needs_gpu), pytest.param((0, 1), marks=needs_two_gpus)], ids=str
)
def test_what_is_read_is_what_was_written_last(gpus: tuple[int, int]) -> None:
    assert apart(differing, gpus) == []
