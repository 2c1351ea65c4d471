"""`NcclChannel`: tensors between GPUs of one host. NCCL matches by order, so order is the sender's.

    sender     isend on the edge's communicator ── then ── header on the control line
    receiver                                              header ─▶ irecv, in header order ─▶ done? deliver
                                       nothing to do? ─▶ deliver, and the device waits

NCCL has no tags: the order of sends and receives on a communicator must agree. Each directed edge has a
communicator of its own, and a receive is posted only when its header has come, so the sender's order at run
time is the order of both, and no receive spins on the GPU for a send that nobody has launched.

A worker with nothing else to do takes what is still on its way (`awaited`), and launches what reads it. The host is
ahead of the device then, which would else be idle from the moment the data are there until the host has noticed and
launched. Nothing can wait for ever: receives run on a stream of their own, which waits for nothing that is computed
here, so all that a device waits for was launched before, by somebody.
"""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from sennit.runtime.channel import Message
from sennit.runtime.control import Line
from sennit.runtime.wire import Described, described

PARTING_S = 0.005
"""Longest nap of a worker that has ended while others have not, seconds."""


@dataclass(frozen=True)
class Coming:
    """A message whose tensors have been asked for: what they are received into, and the receives."""

    message: Message
    header: Described
    into: list[Tensor]
    works: list[Any]


class NcclChannel:
    """Channel of GPU worker `rank`.

    Args:
        lines: control line to each other worker.
        rendezvous: a file that all workers of the run see.
    """

    def __init__(self, rank: int, lines: Mapping[int, Line], rendezvous: Path, device: torch.device) -> None:
        self.rank, self.lines, self.device = rank, lines, device
        world = len(lines) + 1
        self.edges: dict[tuple[int, int], Any] = {}
        if world > 1:
            # every edge has a communicator to itself, so that its messages are serialised is what is wanted
            os.environ.setdefault("TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING", "false")
            store = dist.FileStore(str(rendezvous), world)  # pyright: ignore[reportPrivateImportUsage]
            # with its device named, a communicator is made at once; made by the first message, two edges can hang
            dist.init_process_group("nccl", store=store, rank=rank, world_size=world, device_id=device)
            for a in range(world):
                for b in range(world):
                    if a != b:
                        self.edges[a, b] = dist.new_group([a, b])
            token = torch.zeros(1, device=device)
            for (a, b), group in self.edges.items():  # the first message makes the communicator: all in one order
                if rank == a:
                    dist.send(token, b, group=group)
                elif rank == b:
                    dist.recv(token, a, group=group)
            torch.cuda.synchronize(device)
        self.parts = False
        """Whether there may be messages at the end that nobody waits for: then all workers part from each other."""
        self.parted: set[int] = set()
        """Those from whom nothing will come any more."""
        self.receiving = torch.cuda.Stream(device)
        self.sent: deque[tuple[Any, Tensor]] = deque()
        self.arriving: deque[Coming] = deque()

    def send(self, worker: int, message: Message, tensors: list[Tensor | None]) -> None:
        header, held = described(tensors)
        for tensor in held:
            work = dist.isend(tensor, worker, group=self.edges[self.rank, worker])
            self.sent.append((work, tensor))
        self.lines[worker].send((message, header))

    def receive(self) -> Iterator[tuple[Message, list[Tensor | None]]]:
        for worker in self.lines:
            self._post(worker)
        for _ in range(len(self.arriving)):
            coming = self.arriving.popleft()
            if all(work.is_completed() for work in coming.works):
                yield coming.message, self._waited_for(coming)
            else:
                self.arriving.append(coming)
        while self.sent and self.sent[0][0].is_completed():
            self.sent.popleft()

    def awaited(self) -> tuple[Message, list[Tensor | None]] | None:
        """What has been on its way for longest. Work that is launched from now on waits for it on the device."""
        if not self.arriving:
            return None
        wanted = (i for i, coming in enumerate(self.arriving) if coming.message.kind != "V")
        place = next(wanted, 0)  # a new version has another way, too
        coming = self.arriving[place]
        del self.arriving[place]
        coming.message.awaited = True
        return coming.message, self._waited_for(coming)

    def _post(self, worker: int) -> None:
        """Receive what a worker's headers announce."""
        for message, header in self.lines[worker].receive():
            if message is None:
                self.parted.add(worker)
            else:
                self.arriving.append(self._posted(worker, message, header))

    def _posted(self, worker: int, message: Message, header: Described) -> Coming:
        """Memory for what a header describes, and the receives into it."""
        group, into = self.edges[worker, self.rank], list[Tensor]()
        with torch.cuda.stream(self.receiving):
            for shape, dtype in header.sent():
                into.append(torch.empty(shape, dtype=dtype, device=self.device))
            works = [dist.irecv(tensor, worker, group=group) for tensor in into]
        return Coming(message, header, into, works)

    def _waited_for(self, coming: Coming) -> list[Tensor | None]:
        """The tensors, for work that is launched from now on."""
        for work in coming.works:
            work.wait()  # tells the current stream; the host goes on
        computing = torch.cuda.current_stream(self.device)
        for tensor in coming.into:
            tensor.record_stream(computing)  # it came from the memory of another stream
        return coming.header.tensors(coming.into, self.device)

    def flush(self) -> bool:
        gone = [line.flush() for line in self.lines.values()]  # every one of them
        return all(gone)

    def expecting(self) -> bool:
        """Whether payloads are on their way, whose end no control line announces."""
        return bool(self.arriving)

    def part(self) -> None:
        """Say that nothing more comes, and receive until all others have said so: a send ends when it is received.

        Raises:
            PeerGone: one has ended without a word.
        """
        for line in self.lines.values():
            line.send((None, None))
        while left := [worker for worker in self.lines if worker not in self.parted]:
            self.flush()
            for worker in left:
                self._post(worker)
            waited = [self.lines[worker] for worker in left if worker not in self.parted]
            select.select(waited, [], [], PARTING_S if waited else 0.0)
        while not self.flush():
            time.sleep(PARTING_S)
        for coming in self.arriving:
            self._waited_for(coming)
        self.arriving.clear()

    def close(self) -> None:
        if self.edges:
            if self.parts:
                self.part()
            torch.cuda.synchronize(self.device)
            dist.destroy_process_group()
