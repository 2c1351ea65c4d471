"""`HostsChannel`: shared memory to workers of the same host, TCP to those of others.

same host     header on a socket pair, payload in an arena
other host    header and payload in one message
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from torch import Tensor

from sennit.runtime.channel import Arena, Message, SharedMemoryChannel
from sennit.runtime.control import Line
from sennit.runtime.hosts.hosts import Hosts
from sennit.runtime.hosts.mirror import Mirror
from sennit.runtime.hosts.wire import packed, unpacked


class HostsChannel(SharedMemoryChannel):
    """Channel of one worker.

    Args:
        lines: control line to each other worker of any host.
        mirror: told what is no message of a task.
    """

    def __init__(self, rank: int, lines: Mapping[int, Line], arenas: list[Arena], hosts: Hosts, mirror: Mirror) -> None:
        super().__init__(rank, {w: line for w, line in lines.items() if hosts.of(w) == hosts.here}, arenas)
        self.far = {w: line for w, line in lines.items() if hosts.of(w) != hosts.here}
        self.offset, self.mirror = hosts.offset, mirror

    def send(self, worker: int, message: Message, tensors: list[Tensor | None]) -> None:
        if worker not in self.far:
            super().send(worker, message, tensors)
            return
        held = [None if t is None else packed(t) for t in tensors]
        self.mirror.figures.tensor_bytes += sum(len(p[2]) for p in held if p is not None)
        told = replace(message, sent=message.sent - self.offset)
        self.far[worker].send(("tensors", told, held))

    def receive(self) -> Iterator[tuple[Message, list[Tensor | None]]]:
        yield from super().receive()
        for line in self.far.values():
            line.flush()  # what is large goes out in pieces, also while there is something to do
            for kind, *rest in line.receive():
                if kind == "tensors":
                    message, held = rest
                    message.sent += self.offset
                    yield message, [None if p is None else unpacked(p) for p in held]
                else:
                    self.mirror.heard(kind, rest)

    def flush(self) -> bool:
        gone = [line.flush() for line in self.far.values()]
        return super().flush() and all(gone)
