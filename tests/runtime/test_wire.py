"""Tensors of a message, packed and unpacked without a channel between."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sennit.memory.parcel import bundle, views, windows
from sennit.runtime.wire import ALIGNED, described, laid_out, rows

TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64]


def passed_on(tensors: list[Tensor | None]) -> tuple[int, list[Tensor | None]]:
    """How many are sent, and what is there then."""
    header, held = described(tensors)
    header = pickle.loads(pickle.dumps(header))
    into = [torch.empty(shape, dtype=dtype) for shape, dtype in header.sent()]
    assert len(into) == len(held)
    for target, source in zip(into, held, strict=True):
        assert target.shape == source.shape and target.dtype == source.dtype and source.is_contiguous()
        assert not source.is_conj() and not source.is_neg(), "what is sent are bytes"
        target.copy_(source)
    return len(held), header.tensors(into, torch.device("cpu"))


def windows_in(shapes: list[tuple[int, ...]], dtype: torch.dtype) -> list[Tensor]:
    """Windows of one tensor, with gaps, in the shapes given."""
    places, end = [], 0
    for shape in shapes:
        start = -(-end // 64) * 64
        places.append((start, shape, torch.empty(shape).stride(), dtype))
        end = start + torch.empty(shape).numel() * dtype.itemsize
    flat = torch.randint(0, 100, (end,), dtype=torch.uint8)
    return windows(flat, places)


@given(
    st.lists(st.lists(st.integers(0, 3), max_size=3).map(tuple), max_size=5),
    st.lists(st.booleans(), min_size=5, max_size=5), st.sampled_from(TYPES),
)  # fmt: skip
def test_what_comes_is_what_was_sent(shapes: list[tuple[int, ...]], there: list[bool], dtype: torch.dtype) -> None:
    kept = zip(shapes, there, strict=False)
    tensors = [torch.full(shape, i, dtype=dtype) if here else None for i, (shape, here) in enumerate(kept)]
    sent, found = passed_on(tensors)
    assert sent == sum(tensor is not None and tensor.numel() > 0 for tensor in tensors)
    for a, b in zip(tensors, found, strict=True):
        assert (a is None) == (b is None)
        assert a is None or b is None or (a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("absent", [None, 0, 2])
def test_windows_of_one_piece_are_sent_at_once_and_are_one_again(dtype: torch.dtype, absent: int | None) -> None:
    """So that they can be folded, clipped and stepped as one."""
    tensors: list[Tensor | None] = [*windows_in([(3, 5), (7,), (2, 2, 2)], dtype)]
    if absent is not None:
        tensors.insert(absent, None)
    sent, found = passed_on(tensors)
    assert sent == 1
    held, came = [t for t in tensors if t is not None], [t for t in found if t is not None]
    assert [t is None for t in tensors] == [t is None for t in found]
    assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(held, came, strict=True))
    one, other = bundle(held), bundle(came)
    assert one is not None and other is not None and tuple(one[1]) == tuple(other[1])


def test_several_pieces_are_sent_as_so_many() -> None:
    a, b = windows_in([(3,), (2, 2)], torch.float32), windows_in([(5,), (1,), (4,)], torch.float32)
    alone = torch.arange(6.0)
    tensors: list[Tensor | None] = [*a, None, alone, *b]
    sent, found = passed_on(tensors)
    assert sent == 3
    for x, y in zip(tensors, found, strict=True):
        assert (x is None and y is None) or (x is not None and y is not None and torch.equal(x, y))
    for held, came in ((a, found[:2]), (b, found[4:])):
        one, other = bundle(held), bundle([tensor for tensor in came if tensor is not None])
        assert one is not None and other is not None and tuple(one[1]) == tuple(other[1])


def test_some_windows_of_a_piece_go_by_themselves() -> None:
    tensors: list[Tensor | None] = [*windows_in([(3,), (4,), (5,)], torch.float32)[:2]]
    assert passed_on(tensors)[0] == 2


@given(st.permutations(range(4)))
def test_windows_in_another_order_than_they_lie_in_keep_their_names(order: list[int]) -> None:
    """And are one piece, which names them as they lie: gradients are named in the order in which a layer names its
    parameters, and lie in another."""
    lying = windows_in([(3,), (3,), (5,), (1, 3)], torch.float32)
    sent, found = passed_on([lying[i] for i in order])
    came = [tensor for tensor in found if tensor is not None]
    assert sent == 1 and all(torch.equal(lying[i], b) for i, b in zip(order, came, strict=True))
    one, other = bundle(lying), bundle(came)
    assert one is not None and other is not None and one[1] == other[1] and torch.equal(one[0], other[0])


def test_one_window_twice_is_not_all() -> None:
    a, b = windows_in([(3,), (3,)], torch.float32)
    sent, found = passed_on([a, a])
    assert (
        sent == 2 and all(tensor is not None and torch.equal(tensor, a) for tensor in found) and not torch.equal(a, b)
    )


@pytest.mark.parametrize(
    "seen",
    [
        lambda t: t.t(), lambda t: t.flip(0), torch.conj, torch._neg_view, lambda t: t.conj().t(),
        lambda t: torch.view_as_real(t)[..., 0], lambda t: torch.view_as_real(t).transpose(0, 2),
    ],
    ids=["transposed", "turned", "conjugated", "negative", "adjoint", "real part", "moved"],
)  # fmt: skip
@pytest.mark.parametrize("together", [True, False], ids=["windows", "alone"])
def test_other_views_of_the_same_bytes_come_as_what_they_show(seen: Any, together: bool) -> None:
    """Of windows, bytes were sent, whatever view was meant; what is read conjugated cannot be sent as it lies."""
    windowed = windows_in([(2, 2), (2, 2)], torch.complex64)
    tensors = [seen(tensor if together else tensor.clone()) for tensor in windowed]
    sent, found = passed_on([*tensors])
    assert sent == 2
    for a, b in zip(tensors, found, strict=True):
        assert b is not None and torch.equal(a, b)


def test_the_same_bytes_as_numbers_of_another_type() -> None:
    tensors: list[Tensor | None] = [tensor.view(torch.int32) for tensor in windows_in([(2, 2), (3,)], torch.float32)]
    _, found = passed_on(tensors)
    assert all(a is not None and b is not None and torch.equal(a, b) for a, b in zip(tensors, found, strict=True))


@given(st.lists(st.tuples(st.lists(st.integers(1, 9), max_size=3).map(tuple), st.sampled_from(TYPES)), max_size=6))
def test_pieces_lie_one_behind_the_other_where_tensors_of_their_own_might(specs: list[Any]) -> None:
    tensors = [(torch.rand(shape) * 100).to(dtype) for shape, dtype in specs]
    places, nbytes = laid_out(specs)
    assert all(offset % ALIGNED == 0 for offset, *_ in places) and nbytes % ALIGNED == 0
    flat = torch.zeros(nbytes, dtype=torch.uint8)
    into, sources = rows(flat, tensors)
    assert len({row.dtype for row in (*into, *sources)}) <= 1, "one launch"
    for row, source in zip(into, sources, strict=True):
        row.copy_(source)
    for tensor, there in zip(tensors, views(flat, places), strict=True):
        assert torch.equal(tensor, there) and there.stride() == tensor.contiguous().stride()
