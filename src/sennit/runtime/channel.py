"""`Channel`: tensors between workers. Headers go over control lines, payloads through shared memory.

    sender                                    receiver
    place = arena.take(n bytes)
    copy tensor in ── header (place) ──────▶  copy tensor out
    arena.give(place) ◀──── ack (ticket) ───

A message that finds the arena full waits in the sender until places come back; meanwhile the sender goes on
receiving, so nobody waits for ever. A message larger than the whole arena travels inside its header.
"""

from __future__ import annotations

import mmap
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from sennit.memory.layout import BOUNDARY
from sennit.runtime.control import Line

ARENA_BYTES = 1 << 28
"""Size of each worker's arena; pages that are never used cost nothing."""


@dataclass
class Message:
    """What one worker tells another.

    Attributes:
        kind: "F" (values), "B" (gradients of values), "P" (gradients of parameters), "N" (gradient norms).
        seq_id, micro_batch, run: whom it concerns; `run` is the receiving run.
        source: sending run.
        items: per tensor `(key, needs_grad)`, in the order of the tensors; a key with a None tensor is an
            explicit "no gradient".
        facts: what is not a tensor, by key: shapes, norms.
        maker: kind of the task that sends it, and
        sent: when it was made, of `time.monotonic`; both for the trace.
    """

    kind: str
    seq_id: int
    micro_batch: int
    run: int
    source: int
    items: list[tuple[Any, bool]] = field(default_factory=list)
    facts: dict[Any, Any] = field(default_factory=dict)
    maker: str = ""
    sent: float = field(default_factory=time.monotonic, compare=False)


class Channel(Protocol):
    """Sends tensors to any worker and hands out what has arrived."""

    def send(self, worker: int, message: Message, tensors: list[Tensor | None]) -> None: ...

    def receive(self) -> Iterator[tuple[Message, list[Tensor | None]]]: ...

    def flush(self) -> bool: ...

    def expecting(self) -> bool: ...

    def close(self) -> None: ...


class Arena:
    """First-fit places in a block of shared memory."""

    def __init__(self, size: int = ARENA_BYTES) -> None:
        self.size = size
        self.memory = mmap.mmap(-1, size)
        self.block = torch.frombuffer(self.memory, dtype=torch.uint8)
        self.free: list[tuple[int, int]] = [(0, size)]  # (offset, length), by offset

    def take(self, nbytes: int) -> int | None:
        """Offset of a free place, or None if there is none now."""
        need = max(BOUNDARY, -(-nbytes // BOUNDARY) * BOUNDARY)
        for i, (offset, length) in enumerate(self.free):
            if length >= need:
                if length == need:
                    del self.free[i]
                else:
                    self.free[i] = (offset + need, length - need)
                return offset
        return None

    def give(self, offset: int, nbytes: int) -> None:
        """Give a place back; neighbours grow together."""
        need = max(BOUNDARY, -(-nbytes // BOUNDARY) * BOUNDARY)
        i = 0
        while i < len(self.free) and self.free[i][0] < offset:
            i += 1
        self.free.insert(i, (offset, need))
        for at in (i, i - 1):
            if 0 <= at < len(self.free) - 1 and sum(self.free[at]) == self.free[at + 1][0]:
                self.free[at] = (self.free[at][0], self.free[at][1] + self.free[at + 1][1])
                del self.free[at + 1]

    def view(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        nbytes = dtype.itemsize
        for n in shape:
            nbytes *= n
        return self.block[offset : offset + nbytes].view(dtype).view(shape)


@dataclass
class _Waiting:
    worker: int
    message: Message
    tensors: list[Tensor | None]


class SharedMemoryChannel:
    """Channel between workers of one host.

    Args:
        rank: this worker.
        lines: control line to each other worker.
        arenas: the arena of every worker; all are shared.
    """

    def __init__(self, rank: int, lines: Mapping[int, Line], arenas: list[Arena]) -> None:
        self.rank, self.lines, self.arenas = rank, lines, arenas
        self.ticket = 0
        self.sent: dict[int, list[tuple[int, int]]] = {}
        self.waiting: deque[_Waiting] = deque()

    def send(self, worker: int, message: Message, tensors: list[Tensor | None]) -> None:
        if self.waiting or not self._try(worker, message, tensors):
            self.waiting.append(_Waiting(worker, message, tensors))

    def _try(self, worker: int, message: Message, tensors: list[Tensor | None]) -> bool:
        arena = self.arenas[self.rank]
        total = sum(-(-t.nbytes // BOUNDARY) * BOUNDARY + BOUNDARY for t in tensors if t is not None)
        if total > arena.size // 2:
            self.lines[worker].send(("inline", message, [None if t is None else t.clone() for t in tensors]))
            return True
        places: list[tuple[int, int]] = []
        described: list[Any] = []
        for tensor in tensors:
            if tensor is None:
                described.append(None)
                continue
            offset = arena.take(tensor.nbytes)
            if offset is None:
                for place in places:
                    arena.give(*place)
                return False
            places.append((offset, tensor.nbytes))
            arena.view(offset, tuple(tensor.shape), tensor.dtype).copy_(tensor)
            described.append((offset, tuple(tensor.shape), tensor.dtype))
        self.ticket += 1
        self.sent[self.ticket] = places
        self.lines[worker].send(("data", message, self.ticket, described))
        return True

    def receive(self) -> Iterator[tuple[Message, list[Tensor | None]]]:
        for worker, line in self.lines.items():
            for kind, *rest in line.receive():
                if kind == "ack":
                    for place in self.sent.pop(rest[0]):
                        self.arenas[self.rank].give(*place)
                elif kind == "inline":
                    yield rest[0], rest[1]
                else:
                    message, ticket, described = rest
                    arena = self.arenas[worker]
                    tensors = [None if d is None else arena.view(*d).clone() for d in described]
                    line.send(("ack", ticket))
                    yield message, tensors
        while self.waiting and self._try(*_fields(self.waiting[0])):
            self.waiting.popleft()

    def flush(self) -> bool:
        """Write what is queued. Returns whether everything has gone out."""
        gone = [line.flush() for line in self.lines.values()]  # every one of them, not up to the first
        return all(gone) and not self.waiting

    def expecting(self) -> bool:
        """Payloads are there when their header is."""
        return False

    def close(self) -> None:
        """Nothing to close: lines and memory end with the process."""


def _fields(item: _Waiting) -> tuple[int, Message, list[Tensor | None]]:
    return item.worker, item.message, item.tensors
