"""`Channel`: tensors between workers. Headers go over control lines, payloads through shared memory.

    sender                                    receiver
    place = arena.take(n bytes)
    copy tensor in ── header (place) ──────▶  copy tensor out
    arena.give(place) ◀──── ack (ticket) ───

Tensors may be on a device. A header goes out when the copies into the arena are done, an ack when those out of it are.
Arenas are not registered with CUDA: that would take all pages of each of them, used or not.

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

from sennit.memory.device import Device, HostDevice
from sennit.memory.layout import BOUNDARY
from sennit.memory.parcel import kept
from sennit.runtime.control import Line
from sennit.runtime.places import Places

ARENA_BYTES = 1 << 28
"""Size of each worker's arena; pages that are never used cost nothing."""


@dataclass
class Message:
    """What one worker tells another.

    Attributes:
        kind: "F" (values), "B" (gradients of values), "P" (gradients of parameters), "N" (gradient norms),
            "V" (new versions of groups).
        seq_id, micro_batch, run: whom it concerns; `run` is the receiving run.
        source: sending run.
        items: per tensor `(key, needs_grad)`, in the order of the tensors; a key with a None tensor is an
            explicit "no gradient".
        facts: what is not a tensor, by key: shapes, norms.
        maker: kind of the task that sends it, and
        sent: when it was made, of `time.monotonic`;
        awaited: its tensors were handed out before they were there, and the device waits for them; all for the trace.
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
    awaited: bool = False


class Channel(Protocol):
    """Sends tensors to any worker and hands out what has arrived.

    Attributes:
        most: bytes from which on a message takes no more, where it could.
    """

    most: int

    def send(self, worker: int, message: Message, tensors: list[Tensor | None]) -> None: ...

    def receive(self) -> Iterator[tuple[Message, list[Tensor | None]]]: ...

    def awaited(self) -> tuple[Message, list[Tensor | None]] | None: ...

    def flush(self) -> bool: ...

    def expecting(self) -> bool: ...

    def close(self) -> None: ...


class Arena(Places):
    """Places in memory that processes share which are forked later."""

    def __init__(self, size: int = ARENA_BYTES) -> None:
        super().__init__(size)
        self.memory = mmap.mmap(-1, size)
        self.block = torch.frombuffer(self.memory, dtype=torch.uint8)

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
        device: where this worker's tensors are, and where those of others arrive; None for the host. Workers may share
            one.
    """

    most = ARENA_BYTES // 4  # several find room

    def __init__(self, rank: int, lines: Mapping[int, Line], arenas: list[Arena], device: Device | None = None) -> None:
        self.rank, self.lines, self.arenas = rank, lines, arenas
        self.device: Device = HostDevice() if device is None else device
        self.ticket = 0
        self.sent: dict[int, list[tuple[int, int]]] = {}
        self.waiting: deque[_Waiting] = deque()

    def send(self, worker: int, message: Message, tensors: list[Tensor | None]) -> None:
        if self.waiting or not self._try(worker, message, tensors):
            own = iter(kept([tensor for tensor in tensors if tensor is not None]))
            self.waiting.append(_Waiting(worker, message, [None if t is None else next(own) for t in tensors]))

    def _try(self, worker: int, message: Message, tensors: list[Tensor | None]) -> bool:
        arena = self.arenas[self.rank]
        given = [tensor for tensor in tensors if tensor is not None]
        if sum(-(-t.nbytes // BOUNDARY) * BOUNDARY + BOUNDARY for t in given) > arena.size // 2:
            held = [None if t is None else torch.empty(t.shape, dtype=t.dtype) for t in tensors]
            self._bring_out([into for into in held if into is not None], given)
            self.lines[worker].send(("inline", message, held))
            return True
        places: list[tuple[int, int]] = []
        for tensor in given:
            offset = arena.take(tensor.nbytes)
            if offset is None:
                for place in places:
                    arena.give(*place)
                return False
            places.append((offset, tensor.nbytes))
        specs = [(offset, tuple(t.shape), t.dtype) for (offset, _), t in zip(places, given, strict=True)]
        self._bring_out([arena.view(*spec) for spec in specs], given)
        left = iter(specs)
        described = [None if tensor is None else next(left) for tensor in tensors]
        self.ticket += 1
        self.sent[self.ticket] = places
        self.lines[worker].send(("data", message, self.ticket, described))
        return True

    def _bring_out(self, into: list[Tensor], tensors: list[Tensor]) -> None:
        """Copy tensors into memory of the host, and wait until they are there."""
        self.device.finish(self.device.write(into, tensors, [self.device.mark()]))

    def _bring_in(self, held: list[Tensor | None]) -> list[Tensor | None]:
        """Copies of memory of the host on the device. Waits until that memory is no longer needed."""
        where = self.device.torch_device
        made = [None if t is None else torch.empty(t.shape, dtype=t.dtype, device=where) for t in held]
        given_up = self.device.mark()  # what is computed until here may still use the memory that `made` got
        copies = [
            self.device.fetch(into, t, [given_up])
            for into, t in zip(made, held, strict=True)
            if into is not None and t is not None
        ]
        for copy in copies:
            self.device.finish(copy)
        return made

    def receive(self) -> Iterator[tuple[Message, list[Tensor | None]]]:
        for worker, line in self.lines.items():
            for kind, *rest in line.receive():
                if kind == "ack":
                    for place in self.sent.pop(rest[0]):
                        self.arenas[self.rank].give(*place)
                elif kind == "inline":
                    yield rest[0], self._bring_in(rest[1])
                else:
                    message, ticket, described = rest
                    arena = self.arenas[worker]
                    tensors = self._bring_in([None if d is None else arena.view(*d) for d in described])
                    line.send(("ack", ticket))
                    yield message, tensors
        while self.waiting and self._try(*_fields(self.waiting[0])):
            self.waiting.popleft()

    def awaited(self) -> None:
        """Tensors are there when they are handed out."""

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
