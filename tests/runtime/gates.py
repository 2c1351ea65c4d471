"""Parts of workers that behave badly: broken schedulers, which hashes and checker must catch, and a late channel."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from sennit.memory.cpu import CpuStore
from sennit.memory.store import USE, HostStore
from sennit.runtime.channel import Channel, Message
from sennit.runtime.worker import Worker


class FinishedAtThisStage:
    """The published rule (NASPipe, Algorithm 2): a subnet may go forward once every earlier conflicting subnet
    has finished its backward *at this stage*, whichever stage held the layer for the earlier one."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def open(self, group: str, seq_id: int, version: int) -> bool:
        earlier = self.worker.subnets.get(version)
        return earlier is None or not earlier.left


class AlwaysOpen:
    """No rule at all."""

    def __init__(self, worker: Worker) -> None:
        pass

    def open(self, group: str, seq_id: int, version: int) -> bool:
        return True


class Copies(CpuStore):
    """Slots that are copies. On shared memory autograd itself notices weights that change under a graph; with
    copies, as on a GPU, nothing but versions and hashes can."""

    def acquire(self, group: str, version: int) -> dict[str, Tensor]:
        leaves = super().acquire(group, version)
        return {name: nn.Parameter(t.detach().clone(), requires_grad=t.requires_grad) for name, t in leaves.items()}


class Halting(CpuStore):
    """Stands still while it stores the word of a second use, as processes may that share a core. Whoever waits for
    that use goes on meanwhile, and stores the next word."""

    def __init__(self, host: HostStore) -> None:
        super().__init__(host)
        for group, words in host.words.items():
            if group.endswith("#buffers"):
                host.words[group] = [_Slow(word) for word in words]  # type: ignore[misc]


class _Slow:
    """Words of which some stores take a while."""

    def __init__(self, words: Any) -> None:
        self.words = words

    def __getitem__(self, place: Any) -> Any:
        return self.words[place]

    def __setitem__(self, place: Any, number: Any) -> None:
        self.words[place] = number
        if place == USE and number:
            time.sleep(0.05)


class Late:
    """A channel whose messages are on their way for up to `longest` seconds, differently for every peer; those from one
    worker to another keep their order, and come in bundles that end anywhere. Now and then the whole worker stands
    still for as long, as processes do that share a core."""

    def __init__(self, inner: Channel, seed: int, longest: float) -> None:
        self.most = inner.most
        self.inner, self.draw, self.longest = inner, random.Random(seed), longest
        self.queues: dict[int, deque[tuple[float, Message, list[Tensor | None]]]] = {}

    def send(self, worker: int, message: Message, tensors: list[Tensor | None]) -> None:
        queue = self.queues.setdefault(worker, deque())
        bundled = queue and self.draw.random() < 0.7
        due = queue[-1][0] if bundled else time.monotonic() + self.longest * self.draw.random()
        held = [None if tensor is None else tensor.clone() for tensor in tensors]
        queue.append((due, message, held))

    def receive(self) -> Iterator[tuple[Message, list[Tensor | None]]]:
        if self.draw.random() < 0.05:
            time.sleep(self.longest * self.draw.random())
        self.flush()
        return self.inner.receive()

    def awaited(self) -> tuple[Message, list[Tensor | None]] | None:
        return self.inner.awaited()

    def flush(self) -> bool:
        for worker, queue in self.queues.items():
            while queue and queue[0][0] <= time.monotonic():
                self.inner.send(worker, *queue.popleft()[1:])
        return self.inner.flush() and not any(self.queues.values())

    def expecting(self) -> bool:
        return any(self.queues.values()) or self.inner.expecting()

    def close(self) -> None:
        self.inner.close()


class Lossy(Late):
    """A channel that loses the gradients of one subnet."""

    def __init__(self, inner: Channel, seq_id: int) -> None:
        super().__init__(inner, 0, 0.0)
        self.seq_id = seq_id

    def send(self, worker: int, message: Message, tensors: list[Tensor | None]) -> None:
        if (message.kind, message.seq_id) != ("B", self.seq_id):
            super().send(worker, message, tensors)
