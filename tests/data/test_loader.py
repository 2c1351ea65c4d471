"""Batches do not depend on who loads them, and loading leaves no files."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sennit.data.loader import BatchSource
from sennit.data.order import KeyedBatches
from sennit.errors import UserError
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


class Spoilt(Points):
    """One sample cannot be read."""

    def __getitem__(self, index: int) -> tuple[Any, Tensor]:
        if index == 3:
            raise KeyError("spoilt")
        return super().__getitem__(index)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_batch_is_there_once_it_and_all_before_it_are_loaded(processes: int) -> None:
    source = BatchSource(batches(), processes, prefetch=2)
    try:
        assert not source.there(0)  # nobody has begun
        source.get(0)
        assert source.there(0)
        soon(source, 2)
        assert not source.there(600) and not source.there(-1)
        ahead = source.next_id + 2 * processes  # so many are asked for ahead
        assert not source.there(ahead)
        source.get(2)
        assert source.there(1)  # kept on the way
        source.drop(0)
        assert not source.there(0)  # it would have to be loaded again
    finally:
        source.close()
    assert not BatchSource(batches(), 0).there(0)


def soon(source: BatchSource, seq_id: int) -> None:
    """Wait until it is there. The test's own limit ends what never comes."""
    while not source.there(seq_id):
        time.sleep(0.001)


def test_a_batch_that_cannot_be_loaded_is_not_followed_by_the_next_one_in_its_place() -> None:
    """Whoever asks again is told the same again, and is given no other subnet's batch."""
    here = KeyedBatches(Spoilt(), 2, seed=3)
    source = BatchSource(KeyedBatches(Spoilt(), 2, seed=3), 1)
    wanted: dict[int, Any] = {}
    for y in range(7):
        try:
            wanted[y] = here[y]
        except UserError:
            wanted[y] = None
    assert None in wanted.values() and any(batch is not None for batch in wanted.values())
    try:
        for y in wanted:
            for _ in range(2):
                if wanted[y] is None:
                    with pytest.raises(UserError, match="spoilt"):
                        source.get(y)
                    assert not source.there(y)
                else:
                    assert same_bits(source.get(y), wanted[y])
    finally:
        source.close()


def strides(batch: Any) -> list[tuple[int, ...]]:
    x, y = batch
    take: Callable[[Tensor], tuple[int, ...]] = Tensor.stride
    return [take(x["image"]), take(x["mask"]), take(y)]
