"""One thread and deterministic kernels for every test, as recipes have by default."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from sennit.supernet.context import set_kernel_flags

torch.set_num_threads(1)
set_kernel_flags("fp32")


@pytest.fixture(autouse=True)
def _same_process_state() -> Iterator[None]:
    """A test that sets threads or kernels (loading a recipe does) leaves them to the next as they were."""
    yield
    torch.set_num_threads(1)
    set_kernel_flags("fp32")
