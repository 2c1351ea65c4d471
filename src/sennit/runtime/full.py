"""A full device, as torch and the libraries below it say it, or keep to themselves.

A convolution whose workspace does not fit is not an error for torch: it takes cuDNN's next algorithm, whose sums are
folded in another order, and keeps to it in that process for these shapes. Under deterministic kernels too. Such a run
would end well, with other bits. So what torch counts is looked at: a call that has met a full device without failing
ends the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sennit.errors import RunError

SIGNS = ("out of memory", "STATUS_ALLOC_FAILED")
"""In messages of CUDA, cuBLAS and cuDNN, which allocate beside torch and raise plain errors."""


def is_full(error: BaseException) -> bool:
    """Whether an error says that a device has no room."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and not isinstance(error, RunError) and any(s in str(error) for s in SIGNS)


def short(error: BaseException) -> str:
    """What the error says first."""
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


SWALLOWED = (
    "the device was full while an operation looked for memory to work in, and it went on in another way (found full: "
    "{times}). Its bits would not be those of this recipe; cuDNN's convolutions do so, and keep to it. Go on with more "
    "of the device free: a lower --in-flight, a --budget (or a lower one), or other programs ended (see `nvidia-smi`)"
)


def times_full(device: torch.device) -> int:
    """How often torch has found the device full in this process, whoever was told."""
    if device.type != "cuda":
        return 0
    return int(torch.cuda.memory_stats_as_nested_dict(device).get("num_ooms", 0))


@contextmanager
def refused_if_swallowed(device: torch.device) -> Iterator[None]:
    """Around what must have the bits of a device with room.

    Raises:
        RunError: something inside found the device full and did not say so.
    """
    before = times_full(device)
    try:
        yield
    except RuntimeError as error:
        if not is_full(error):
            raise
        if (times := times_full(device) - before - 1) > 0:  # one is the error itself
            raise RunError(SWALLOWED.format(times=times)) from error
        raise
    if (times := times_full(device) - before) > 0:
        raise RunError(SWALLOWED.format(times=times))


@contextmanager
def told_if_full(message: str) -> Iterator[None]:
    """Around what may fill a device where no task is run again.

    Args:
        message: with `{why}`.

    Raises:
        RunError: the device is full.
    """
    try:
        yield
    except RuntimeError as error:
        if not is_full(error):
            raise
        raise RunError(message.format(why=short(error))) from error
