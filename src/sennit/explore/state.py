"""`quiet`: run something beside a training run without leaving a trace in the process.

Evaluation draws random numbers (dropout while statistics are re-estimated, a module that draws in eval
mode), runs under the recipe's kernels and needs no gradients. The process it runs in may be in the middle
of training.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from sennit.supernet.context import set_kernel_flags
from sennit.supernet.generators import generators_restored, seed_generators
from sennit.supernet.task import check_threads


@contextmanager
def quiet(
    key: int, device: torch.device, threads: int, precision: str = "fp32", deterministic: bool = True
) -> Iterator[None]:
    """No gradients, generators seeded with `key`, the recipe's kernels; all as found afterwards.

    Args:
        key: 0 <= key < 2**64.
        threads: the recipe's; the process must use that many.
        precision, deterministic: the recipe's, for the kernel flags.

    Raises:
        UserError: the process uses another number of threads.
    """
    check_threads(threads)
    with generators_restored(), _cuda_generators_restored(), _kernels_restored(), torch.no_grad():
        set_kernel_flags(precision, deterministic=deterministic)
        seed_generators(key, device)
        yield


@contextmanager
def _cuda_generators_restored() -> Iterator[None]:
    if not torch.cuda.is_initialized():
        yield
        return
    states = torch.cuda.get_rng_state_all()
    try:
        yield
    finally:
        torch.cuda.set_rng_state_all(states)


@contextmanager
def _kernels_restored() -> Iterator[None]:
    """The flags that `set_kernel_flags` sets."""
    deterministic = torch.get_deterministic_debug_mode()
    fast = torch.backends.mha.get_fastpath_enabled()
    flags: list[tuple[Any, str]] = [
        (torch.utils.deterministic, "fill_uninitialized_memory"),
        (torch.backends.cudnn, "deterministic"),
        (torch.backends.cudnn, "benchmark"),
        (torch.backends.cudnn, "allow_tf32"),
        (torch.backends.cuda.matmul, "allow_tf32"),
    ]
    values = [getattr(owner, name) for owner, name in flags]
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(deterministic)  # see set_kernel_flags
        torch.backends.mha.set_fastpath_enabled(fast)
        for (owner, name), value in zip(flags, values, strict=True):
            setattr(owner, name, value)
