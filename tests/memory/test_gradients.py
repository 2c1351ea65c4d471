"""Gradients of a group and the piece they lie in."""

from __future__ import annotations

import pytest
import torch
from tests.gpus import on_gpu
from tests.memory.test_parcel import Group

from sennit.memory.gradients import Gradients, as_gradients
from sennit.memory.parcel import bundle
from sennit.runtime.fold import GroupFold
from sennit.supernet.bits import same_bits

CPU = torch.device("cpu")


def test_what_is_done_to_the_piece_is_done_to_all() -> None:
    grads = Gradients(Group((), "cpu").gradients(0, together=True))
    before = {name: grad.clone() for name, grad in grads.items()}
    (piece,) = grads.together
    piece.mul_(2.0)
    assert all(torch.equal(grad, 2.0 * before[name]) for name, grad in grads.items())


def test_gradients_that_lie_apart_are_treated_one_by_one() -> None:
    grads = as_gradients(Group((), "cpu").gradients(0, together=False))
    assert grads.piece is None and grads.together == list(grads.values())
    assert as_gradients(grads) is grads
    assert Gradients().piece is None and Gradients().together == []


def test_they_stay_where_they_are_if_that_is_the_device() -> None:
    for grads in (as_gradients(Group((), "cpu").gradients(0, together=True)), Gradients()):
        assert grads.on(CPU) is grads


@on_gpu
def test_gradients_that_were_kept_in_host_memory_are_moved() -> None:
    grads = Gradients(Group((), "cpu").gradients(0, together=True))
    moved = grads.on(torch.device("cuda"))
    assert all(grad.is_cuda for grad in moved.values()) and moved.on(torch.device("cuda")) is moved
    assert same_bits([grad.cpu() for grad in moved.values()], list(grads.values()))


@pytest.mark.parametrize("micro_batches", [1, 3])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("missing", [None, "x"])
def test_a_fold_knows_the_piece_of_its_sums(micro_batches: int, together: bool, missing: str | None) -> None:
    fold = GroupFold(micro_batches, 1, lambda name, grad: grad.clone())
    for j in range(micro_batches):
        part = Group((), "cpu").gradients(j, together)
        fold.add(j, {(name, -1): None if name == missing else grad for name, grad in part.items()})
    found = fold.gradients()
    assert found.keys() == fold.total.keys()
    expected = bundle(list(fold.total.values()))
    assert (found.piece is None) == (expected is None) == (not together or missing is not None)
    if found.piece is not None and expected is not None:
        assert found.piece[1] == expected[1] and same_bits(found.piece[0], expected[0])
        assert found.piece[0].data_ptr() == expected[0].data_ptr()


def test_a_fold_that_gets_more_tensors_later_has_no_piece() -> None:
    fold = GroupFold(2, 1, lambda name, grad: grad.clone())
    fold.add(0, {(name, -1): grad for name, grad in Group((), "cpu").gradients(0, together=True).items()})
    more = {**Group((), "cpu").gradients(1, together=False), "y": torch.ones(2)}
    fold.add(1, {(name, -1): grad for name, grad in more.items()})
    assert fold.gradients().keys() == {"w", "x", "y"} and fold.gradients().piece is None
