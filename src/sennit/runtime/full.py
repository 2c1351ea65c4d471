"""A full device, as torch and the libraries below it say it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sennit.errors import RunError

SIGNS = ("out of memory", "STATUS_ALLOC_FAILED")
"""In messages of CUDA, NCCL, cuBLAS and cuDNN, which allocate beside torch and raise plain errors."""


def is_full(error: BaseException) -> bool:
    """Whether an error says that a device has no room."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and not isinstance(error, RunError) and any(s in str(error) for s in SIGNS)


def short(error: BaseException) -> str:
    """What the error says first."""
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


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
