"""Copies of a GPU come after what they must, and before what needs them. With a kernel that takes long in between."""

from __future__ import annotations

import pytest
import torch
from tests.gpus import on_gpu

from sennit.memory.cuda_device import CudaDevice

LONG = 200_000_000
"""Cycles: about 0.1 s."""
N = 1 << 20


def sleep() -> None:
    torch.cuda._sleep(LONG)  # pyright: ignore[reportPrivateUsage]


@pytest.fixture(params=[True, False], ids=["pinned", "pageable"])
def pinned(request: pytest.FixtureRequest) -> bool:
    return request.param


def device_of(pinned: bool) -> CudaDevice:
    return CudaDevice(torch.device("cuda", 0), pinned)


def on_host(value: int, device: CudaDevice) -> torch.Tensor:
    made = torch.full((N,), value, dtype=torch.uint8)
    return made.pin_memory() if device.pinned else made


def on_device(value: int) -> torch.Tensor:
    return torch.full((N,), value, dtype=torch.uint8, device="cuda")


@on_gpu
def test_what_is_computed_after_use_sees_the_copy(pinned: bool) -> None:
    device = device_of(pinned)
    slot, source = on_device(1), on_host(2, device)
    with torch.cuda.stream(device.fetching):
        sleep()
    copy = device.fetch(slot, source, [device.mark()])
    assert device.done(copy) is not device.pinned, "pageable memory: the host has waited"
    device.use(copy)
    seen = slot.clone()
    torch.cuda.synchronize()
    assert device.done(copy) and bool((seen == 2).all())
    assert (device.stalled() > 0) is device.pinned and device.stalled() == 0


@on_gpu
def test_a_slot_is_fetched_into_only_when_its_last_user_is_done(pinned: bool) -> None:
    device = device_of(pinned)
    slot, source = on_device(1), on_host(2, device)
    sleep()
    seen = slot.clone()
    device.use(device.fetch(slot, source, [device.mark()]))
    now = slot.clone()
    torch.cuda.synchronize()
    assert bool((seen == 1).all()) and bool((now == 2).all())


@on_gpu
def test_what_is_written_back_is_what_was_computed_before(pinned: bool) -> None:
    device = device_of(pinned)
    slot, target = on_device(1), on_host(0, device)
    slot.add_(0)  # a kernel is loaded at its first call, which waits for the device
    torch.cuda.synchronize()
    sleep()
    slot.add_(2)
    copy = device.write([target], [slot], [device.mark()])
    assert device.done(copy) is not device.pinned
    device.finish(copy)
    assert bool((target == 3).all())


@on_gpu
def test_memory_is_given_on_only_when_it_has_been_written_back(pinned: bool) -> None:
    device = device_of(pinned)
    slot, target, source = on_device(1), on_host(0, device), on_host(5, device)
    torch.cuda.synchronize()
    with torch.cuda.stream(device.writing):
        sleep()
    written = device.write([target], [slot], [])
    device.finish(device.fetch(slot, source, [written]))
    torch.cuda.synchronize()
    assert bool((target == 1).all()) and bool((slot == 5).all())


@on_gpu
def test_the_word_is_what_came_with_the_bytes(pinned: bool) -> None:
    device = device_of(pinned)
    slot, source = on_device(0), on_host(0, device)
    source[:8].view(torch.int64).fill_(41)
    copy = device.fetch(slot, source, [device.mark()])
    read = device.word(slot, copy)
    device.use(copy)
    sleep()
    slot[:8].view(torch.int64).fill_(42)
    assert read() == 41
    assert int(slot[:8].view(torch.int64).item()) == 42


@on_gpu
def test_room_is_nothing_that_is_still_computed_on(pinned: bool) -> None:
    """Memory that was given back while kernels on it are queued is not taken, so nothing has to be waited for."""
    device = device_of(pinned)
    freed, source = on_device(1), on_host(2, device)
    sleep()
    freed.fill_(3)
    del freed  # torch would give it to whoever asks next on the computing stream
    slot = device.room(N)
    copy = device.fetch(slot, source, [])
    device.finish(copy)
    assert not device.mark().query(), "the kernels before are still under way"
    device.use(copy)
    seen = slot.clone()
    torch.cuda.synchronize()
    assert bool((seen == 2).all())
