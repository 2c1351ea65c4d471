"""Batches do not depend on who loads them, and loading leaves no files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sennit.data.loader import BatchSource
from sennit.data.order import KeyedBatches
from sennit.supernet.bits import same_bits


class Points:
    """Noisy points and a nest of other things; every visit draws noise."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[Any, Tensor]:
        image = torch.randn(3, 4, 4) + index
        return {"image": image.permute(1, 2, 0), "mask": torch.tensor(index % 2 == 0)}, torch.tensor(index)


def batches() -> KeyedBatches:
    return KeyedBatches(Points(), 4, seed=3)


def refuse(*given: Any) -> Any:
    raise AssertionError("a storage was moved to shared memory")


@pytest.mark.parametrize("processes", [1, 2])
def test_loader_processes_give_the_same_batches_and_use_no_shared_memory(
    processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loader killed at the wrong moment left a file in /dev/shm; now there is no such moment."""
    here = batches()
    for name in ("_share_fd_cpu_", "_share_filename_cpu_", "_new_using_fd_cpu", "_new_using_filename_cpu"):
        monkeypatch.setattr(torch.UntypedStorage, name, refuse)
    source = BatchSource(batches(), processes)
    try:
        for seq_id in (0, 1, 2, 5, 3):
            loaded, wanted = source.get(seq_id), here[seq_id]
            assert same_bits(loaded, wanted)
            assert strides(loaded) == strides(wanted)
    finally:
        source.close()


def strides(batch: Any) -> list[tuple[int, ...]]:
    x, y = batch
    take: Callable[[Tensor], tuple[int, ...]] = Tensor.stride
    return [take(x["image"]), take(x["mask"]), take(y)]
