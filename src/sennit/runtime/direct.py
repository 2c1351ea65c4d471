"""`DirectChannel`: tensors between processes on GPUs of one host, through memory of the sender that the receiver reads.

    sender      copy into a block ─ event ── header (place, event) ──┐
    receiver                                         wait(event) ─ copy out ─▶ there? deliver
    sender      the place may be used again ◀── ack ── over? ────────┘
                                    nothing to do? ─▶ deliver at once, and the device waits

A worker with nothing else to do takes what is still on its way (`awaited`), and launches what reads it. The host is
ahead of the device then, which would else be idle from the moment the data are there until the host has noticed and
launched.

Nothing can wait for ever (`reach.py`): a header is sent when what it tells of has been launched, and a stream waits
for nothing else. A full block is no reason to wait: there will be one more. If the GPU has no room for it, tensors
travel in the header.

NCCL does this with kernels that keep both GPUs busy until each has found the other. They match by order alone, and a
host that waits for its device meanwhile (a kernel is loaded, memory is asked for) waits for the other host, which may
be waiting in the same way. Each tensor is a call on both hosts there, here a launch takes all of a message.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from sennit.memory.parcel import views
from sennit.runtime.channel import Message
from sennit.runtime.control import Line, PeerGone
from sennit.runtime.given import FIRST, Given, Place
from sennit.runtime.reach import Copy, Event, Handle, Reach
from sennit.runtime.wire import Described, described, laid_out

MOST = 1 << 28
"""Bytes from which on a message takes no more. Each costs both hosts about as long as a layer, and the way is fast."""

NAP_S = 0.05
"""Longest nap while others are waited for, seconds."""

Received = tuple[Message, list[Tensor | None]]


@dataclass(frozen=True)
class Coming:
    """A message whose tensors are being copied.

    Attributes:
        ticket: of the place that they are copied from.
    """

    worker: int
    ticket: int
    message: Message
    header: Described
    into: Tensor
    copy: Copy


class Unreachable(Exception):
    """The memory of one worker's GPU cannot be read by another; says why."""


class DirectChannel:
    """Channel of a worker. Attributes as of `Channel`.

    Args:
        lines: control line to each other worker.
        reach: of its GPU.

    Raises:
        Unreachable: by all workers alike, if it is so for any two.
    """

    most = MOST

    def __init__(self, rank: int, lines: Mapping[int, Line], reach: Reach) -> None:
        self.rank, self.lines, self.reach = rank, lines, reach
        self.given = Given(reach, lines)
        self.theirs: dict[int, tuple[list[Tensor], list[Event]]] = {worker: ([], []) for worker in lines}
        """Blocks and events of the others."""
        self.arriving: deque[Coming] = deque()
        self.early: deque[Coming] = deque()
        """Handed out while they were copied."""
        self.over: dict[int, list[int]] = {worker: [] for worker in lines}
        """Tickets whose senders are still to be told that their place is free."""
        self.parted: set[int] = set()
        """Those from whom nothing will come any more."""
        if lines:
            self._meet()

    # -- who reaches whom

    def _meet(self) -> None:
        """Open one another's first block."""
        reason = ""
        try:
            self.given.grow(FIRST)
        except Exception as error:
            reason = f"worker {self.rank} has none to give: {_first(error)}"
        for worker in self.lines:
            self.lines[worker].send(None if reason else self.given.handles(worker))
        for worker in self.lines:
            handles = self._next_of(worker)
            if handles is None:
                continue  # its own reason comes
            try:
                self._open(worker, *handles)
            except Exception as error:
                reason = reason or f"worker {self.rank} cannot open that of worker {worker}: {_first(error)}"
        for line in self.lines.values():
            line.send(reason)
        reasons = [reason, *(self._next_of(worker) for worker in self.lines)]
        if any(reasons):
            raise Unreachable(next(filter(None, reasons)))

    def _next_of(self, worker: int) -> Any:
        """The next thing that a worker says. What it says after that stays for later."""
        while True:
            for said in self.lines[worker].receive():
                return said
            self.flush()
            select.select([self.lines[worker]], [], [], NAP_S)

    def _open(self, worker: int, blocks: list[Handle], events: list[Handle]) -> None:
        """Something new of a worker."""
        known, recorded = self.theirs[worker]
        known += map(self.reach.open, blocks)
        recorded += map(self.reach.open_event, events)

    # -- sending

    def send(self, worker: int, message: Message, tensors: list[Tensor | None]) -> None:
        header, held = described(tensors)
        if not held:
            self._tell(worker, "data", message, header, None)
            return
        there = self.given.write(laid_out(header.sent())[1], held)
        self._tell(worker, "data", message, header, [tensor.cpu() for tensor in held] if there is None else there)

    def _tell(self, worker: int, kind: str, *rest: Any) -> None:
        """Say something, and what else is to be said to a worker."""
        over, self.over[worker] = self.over[worker], []
        self.lines[worker].send((kind, over, self.given.handles(worker), *rest))

    # -- receiving

    def receive(self) -> Iterator[Received]:
        for worker in self.lines:
            yield from self._hear(worker)
        while self.early and self.reach.done(self.early[0].copy):
            self._is_over(self.early.popleft())
        for _ in range(len(self.arriving)):
            coming = self.arriving.popleft()
            if self.reach.done(coming.copy):
                self._is_over(coming)
                yield coming.message, self._tensors(coming)
            else:
                self.arriving.append(coming)

    def _hear(self, worker: int) -> Iterator[Received]:
        """Take in what a worker says. Start copying; hand out what there is nothing to copy of."""
        for kind, over, handles, *rest in self.lines[worker].receive():
            self.given.give_back(over)
            self._open(worker, *handles)
            if kind == "parted":
                self.parted.add(worker)
            elif kind == "data":
                message, header, where = rest
                if isinstance(where, tuple):
                    self.arriving.append(self._started(worker, message, header, *where))
                else:
                    brought = [tensor.to(self.reach.device) for tensor in where or ()]
                    yield message, header.tensors(brought, self.reach.device)

    def _started(self, worker: int, message: Message, header: Described, ticket: int, place: Place) -> Coming:
        blocks, events = self.theirs[worker]
        source = blocks[place.block][place.offset : place.offset + place.nbytes]
        into, copy = self.reach.read(source, events[place.event])
        return Coming(worker, ticket, message, header, into, copy)

    def _is_over(self, coming: Coming) -> None:
        """Its place is free."""
        self.over[coming.worker].append(coming.ticket)

    def awaited(self) -> Received | None:
        """What has been on its way for longest. Work that is launched from now on waits for it on the device."""
        if not self.arriving:
            return None
        coming = self.arriving.popleft()
        self.early.append(coming)
        coming.message.awaited = True
        return coming.message, self._tensors(coming)

    def _tensors(self, coming: Coming) -> list[Tensor | None]:
        """The tensors, for work that is launched from now on."""
        self.reach.use(coming.into, coming.copy)
        pieces = views(coming.into, laid_out(coming.header.sent())[0])
        return coming.header.tensors(pieces, self.reach.device)

    # -- now and then

    def flush(self) -> bool:
        for worker, over in self.over.items():
            if over:
                self._tell(worker, "over")
        gone = [line.flush() for line in self.lines.values()]  # every one of them
        return all(gone)

    def expecting(self) -> bool:
        """Whether payloads are on their way, whose end no control line announces."""
        return bool(self.arriving)

    def close(self) -> None:
        """Read nothing any more, say so, and stay until all others have said so: what they read is here.

        Raises:
            PeerGone: one has ended without a word.
        """
        for coming in [*self.arriving, *self.early]:
            self.reach.finish(coming.copy)
        for worker in self.lines:
            self._tell(worker, "parted")
        while left := [worker for worker in self.lines if worker not in self.parted]:
            self.flush()
            for worker in left:
                self._drop(worker)
            waited = [self.lines[worker] for worker in left if worker not in self.parted]
            select.select(waited, [], [], NAP_S if waited else 0.0)
        while not self.flush():
            time.sleep(NAP_S)

    def _drop(self, worker: int) -> None:
        """Hear a worker until it has parted. Whatever it sends goes to nobody."""
        try:
            self.parted.update(worker for kind, *_ in self.lines[worker].receive() if kind == "parted")
        except PeerGone:
            if worker not in self.parted:  # else it has heard the same from here, and has ended
                raise


def _first(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
