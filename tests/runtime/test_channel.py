"""Messages and tensors between workers."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from sennit.runtime.channel import Arena, Message, SharedMemoryChannel
from sennit.runtime.control import Line, PeerGone
from sennit.runtime.fold import GroupFold
from tests.runtime.lines import OPEN


def pair(left: str, right: str) -> tuple[Line, Line]:
    ends = Line.pair(left, right)
    OPEN.extend(ends)
    return ends


def channels(size: int = 1 << 16) -> tuple[SharedMemoryChannel, SharedMemoryChannel]:
    a, b = pair("worker 0", "worker 1")
    arenas = [Arena(size), Arena(size)]
    return SharedMemoryChannel(0, {1: a}, arenas), SharedMemoryChannel(1, {0: b}, arenas)


def test_tensors_arrive_as_sent_with_explicit_nothing() -> None:
    one, two = channels()
    sent: list[Tensor | None] = [torch.arange(6.0).reshape(2, 3), None, torch.tensor(7), torch.empty(0, 2)]
    one.send(1, Message("F", 3, 1, 2, 0, [(n, True) for n in range(4)], {9: (2, 3)}), sent)
    ((message, got),) = list(two.receive())
    assert (message.seq_id, message.micro_batch, message.facts) == (3, 1, {9: (2, 3)})
    assert got[1] is None
    for mine, theirs in zip(sent, got, strict=True):
        assert mine is None or (theirs is not None and torch.equal(mine, theirs) and mine.dtype == theirs.dtype)


def test_a_full_arena_delays_and_never_blocks() -> None:
    one, two = channels(1 << 12)
    for n in range(40):
        one.send(1, Message("F", n, 0, 0, 0, [(0, True)]), [torch.full((200,), float(n))])
    got: list[float] = []
    while len(got) < 40:
        got += [float(tensors[0][0]) for _, tensors in two.receive() if tensors[0] is not None]
        list(one.receive())  # acknowledgements free the arena, and what waits goes out
    assert got == [float(n) for n in range(40)], "in order"
    list(two.receive())
    list(one.receive())
    assert one.arenas[0].free == [(0, 1 << 12)], "every place came back"


def test_a_tensor_larger_than_the_arena_travels_in_its_header() -> None:
    one, two = channels(1 << 12)
    big = torch.randn(5000)
    one.send(1, Message("B", 0, 0, 0, 0, [(0, False)]), [big])
    got: list[Tensor | None] = []
    while not got:
        one.flush()
        for _, tensors in two.receive():
            got += tensors
    assert got[0] is not None and torch.equal(got[0], big)


def test_places_never_overlap() -> None:
    draw = random.Random(3)
    arena, held = Arena(1 << 14), list[tuple[int, int]]()
    for _ in range(2000):
        if held and draw.random() < 0.5:
            arena.give(*held.pop(draw.randrange(len(held))))
        else:
            size = draw.randrange(1, 3000)
            offset = arena.take(size)
            if offset is not None:
                assert all(offset + size <= o or o + n <= offset for o, n in held)
                held.append((offset, size))
    for place in held:
        arena.give(*place)
    assert arena.free == [(0, 1 << 14)]


def test_a_closed_end_is_noticed_after_its_last_words() -> None:
    a, b = pair("a", "b")
    a.send("last words")
    a.close()
    heard: list[str] = []
    try:
        for message in b.receive():
            heard.append(message)
    except PeerGone as gone:
        heard.append(gone.peer)
    assert heard == ["last words", "a"]


def test_gradients_fold_in_order_whatever_order_they_come_in() -> None:
    """((use 5 + use 2) of micro-batch 0) + ((use 5 + use 2) of micro-batch 1)."""
    parts = {(j, s): torch.randn(50) * 10 ** (3 * s) for j in range(2) for s in (2, 5)}
    expected = (parts[0, 5] + parts[0, 2]) + (parts[1, 5] + parts[1, 2])
    for order in ([(0, 2), (0, 5), (1, 2), (1, 5)], [(1, 5), (0, 5), (1, 2), (0, 2)]):
        fold = GroupFold(2, 2, lambda name, grad: grad.clone())
        done = [fold.add(j, {("w", s): parts[j, s], ("b", s): None}) for j, s in order]
        assert done == [False, False, False, True]
        assert list(fold.total) == ["w"] and torch.equal(fold.total["w"], expected)
