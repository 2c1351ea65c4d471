"""Data order, augmentation and loading: keyed, so that nobody's processes matter."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from small import Points
from torch import Tensor

from sennit.data.loader import BatchSource
from sennit.data.order import KeyedBatches, batch_indices
from sennit.errors import UserError

MORE_THAN_CPUS = pytest.mark.filterwarnings("ignore:This DataLoader will create")


# -- order


@pytest.mark.parametrize(("n", "size"), [(30, 7), (30, 1), (5, 7), (5, 23), (1, 3)])
def test_every_epoch_has_every_sample_once(n: int, size: int) -> None:
    stream = [i for y in range(3 * n) for i in batch_indices(3, y, size, n)]
    epochs = [stream[e * n : (e + 1) * n] for e in range(len(stream) // n)]
    assert all(sorted(epoch) == list(range(n)) for epoch in epochs)
    assert n == 1 or len({tuple(epoch) for epoch in epochs}) > 1


def test_order_depends_on_the_seed_and_the_seq_id_alone() -> None:
    wanted = [batch_indices(3, y, 7, 30) for y in range(40)]
    assert [batch_indices(3, y, 7, 30) for y in reversed(range(40))] == wanted[::-1]
    assert [batch_indices(4, y, 7, 30) for y in range(40)] != wanted
    assert batch_indices(3, 10**9, 7, 30) == batch_indices(3, 10**9, 7, 30)


def test_shuffles_are_even() -> None:
    first = Counter(batch_indices(0, 10 * e, 3, 30)[0] for e in range(3000))
    assert len(first) == 30 and all(abs(count - 100) < 60 for count in first.values())


# -- batches


def same(a: Any, b: Any) -> bool:
    return all(torch.equal(s, t) for s, t in zip(a, b, strict=True))


def test_augmentation_is_keyed_by_sample_and_subnet() -> None:
    batches = KeyedBatches(Points(augment=True), 7, 3)
    one = batches[4]
    torch.rand(3), random.random(), np.random.rand()
    batches[5]
    assert same(batches[4], one)
    plain = KeyedBatches(Points(), 7, 3)[4]
    assert torch.equal(plain[1], one[1]) and not torch.equal(plain[0], one[0])
    whole = KeyedBatches(Points(augment=True), 30, 3)  # the same sample in another epoch is drawn anew
    first, second = whole[0], whole[1]
    rows = [first[0][whole.indices(0).index(0)], second[0][whole.indices(1).index(0)]]
    assert not torch.equal(rows[0], rows[1])


def test_loading_leaves_the_callers_generators_alone() -> None:
    batches = KeyedBatches(Points(augment=True), 7, 3)
    for generator in (lambda: float(torch.rand(())), random.random, np.random.rand):
        torch.manual_seed(1), random.seed(1), np.random.seed(1)
        wanted = generator()
        torch.manual_seed(1), random.seed(1), np.random.seed(1)
        batches[2]
        assert generator() == wanted


def test_a_data_set_may_collate_and_choose_its_batches() -> None:
    class Own(Points):
        def collate(self, samples: list[Any]) -> Any:
            return {"x": torch.stack([x for x, _ in samples]), "noise": torch.rand(2)}, [y for _, y in samples]

        def batch(self, seq_id: int, size: int, seed: int) -> list[int]:
            return [seq_id, seed]

    x, y = KeyedBatches(Own(), 7, 3)[4]
    assert x["x"].shape == (2, 6) and [int(v) for v in y] == [0, 3]
    assert torch.equal(KeyedBatches(Own(), 7, 3)[4][0]["noise"], x["noise"])


def test_data_that_cannot_be_used() -> None:
    with pytest.raises(UserError, match=r"must be a map-style dataset with __len__ and __getitem__"):
        KeyedBatches(iter([1]), 2, 0)
    with pytest.raises(UserError, match=r"the data set is empty"):
        KeyedBatches([], 2, 0)
    with pytest.raises(UserError, match=r"a batch must be a pair \(x, y\), .* returned Tensor"):
        KeyedBatches([torch.ones(2)], 1, 0)[0]


# -- loader processes


class Cropped(Points):
    """Random crop and flip of a small picture, with all three generators."""

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        picture = torch.arange(64.0).view(8, 8) + index
        top, left = random.randrange(3), int(np.random.randint(3))
        picture = picture[top : top + 6, left : left + 6]
        return (picture.flip(1) if torch.rand(()) < 0.5 else picture) + torch.randn(6, 6), self.y[index]


@MORE_THAN_CPUS
@pytest.mark.parametrize("size", [1, 5])
def test_any_number_of_loader_processes_gives_the_same_batches(size: int) -> None:
    batches = KeyedBatches(Cropped(), size, 3)
    wanted = [batches[y] for y in range(12)]
    for processes, prefetch in ((0, 2), (1, 1), (1, 3), (4, 2)):
        source = BatchSource(batches, processes, prefetch)
        for y in range(12):
            assert same(source.get(y), wanted[y]), (processes, y)
            source.drop(y)
        source.close()


@MORE_THAN_CPUS
@pytest.mark.parametrize("processes", [0, 1, 4])
def test_resume_lands_on_the_same_batch(processes: int) -> None:
    batches = KeyedBatches(Cropped(), 4, 3)
    source = BatchSource(batches, processes)
    for y in (17, 18, 19):
        assert same(source.get(y), batches[y])
    source.close()


def test_batches_asked_for_out_of_order_are_kept_until_dropped() -> None:
    batches = KeyedBatches(Cropped(), 4, 3)
    source = BatchSource(batches, 1)
    three = source.get(3)
    assert source.get(3) is three
    assert all(same(source.get(y), batches[y]) for y in (5, 4, 3))
    for y in (3, 4, 5):
        source.drop(y)
    source.drop(99)
    assert same(source.get(3), batches[3])  # dropped, and needed again
    source.close()


def children() -> set[int]:
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return {int(pid) for pid in file.read().split()}


def test_loader_processes_end_with_the_source() -> None:
    before = children()
    source = BatchSource(KeyedBatches(Points(), 4, 3), 2)
    source.get(0)
    assert len(children() - before) >= 2
    source.close()
    deadline = time.monotonic() + 10
    while children() - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert children() <= before


class Broken(Points):
    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        raise ValueError(f"sample {index} cannot be read")


@pytest.mark.parametrize("processes", [0, 1])
def test_a_data_set_that_raises_says_so(processes: int) -> None:
    source = BatchSource(KeyedBatches(Broken(), 4, 3), processes)
    with pytest.raises(ValueError, match=r"sample [0-9]+ cannot be read"):
        source.get(0)
    source.close()


# torch speaks from a signal handler, wherever the process is: also while the iterator is being destroyed
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loader_that_is_killed_is_an_error_and_no_hang() -> None:
    before = children()
    source = BatchSource(KeyedBatches(Points(), 4, 3), 1)
    source.get(0)
    for pid in children() - before:
        os.kill(pid, signal.SIGKILL)
    # torch notices by a broken pipe, or by a signal that may come anywhere
    with pytest.raises(RuntimeError, match=r"a process that loads data has died|is killed by signal"):
        for y in range(1, 50):
            source.get(y)
    source.close()
