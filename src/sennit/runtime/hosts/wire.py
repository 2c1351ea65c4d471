"""TCP between hosts: connections, and tensors as bytes.

connect ── key, kind, from, to, port ──▶ accept      nothing else is read before the key has been seen to be right
        ◀═══════════ a `Line` ═════════▶
"""

from __future__ import annotations

import hmac
import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sennit.errors import RunError
from sennit.runtime.control import Line

KEY_BYTES = 32
SILENT_S = 5.0
"""How long a host may leave packets without an answer, seconds."""

_HELLO = struct.Struct(f"<{KEY_BYTES}siiii")
_HELLO_S = 5.0

HOST, LAUNCHER, WORKER = 0, 1, 2
"""Kinds of connections: between launchers; of a worker to host 0's launcher; between workers."""


@dataclass(frozen=True)
class Hello:
    """What a connection is for.

    Attributes:
        kind: `HOST`, `LAUNCHER` or `WORKER`.
        source, target: hosts, or workers; of a launcher's line only the source counts.
        port: where the source host takes connections.
    """

    kind: int
    source: int
    target: int
    port: int


def listen() -> socket.socket:
    """A socket that takes connections on any port."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server(("", 0), backlog=1024)


def connect(address: tuple[str, int], key: bytes, hello: Hello, patience: float = 60.0) -> socket.socket:
    """Connect, and say what for.

    Raises:
        RunError: nobody answers there.
    """
    try:
        sock = socket.create_connection(address, patience)
        sock.sendall(_HELLO.pack(key, hello.kind, hello.source, hello.target, hello.port))
    except OSError as error:
        raise RunError(
            f"cannot connect to {address[0]}, port {address[1]}: {error}. Hosts must reach each other on any TCP port"
        ) from error
    return _tuned(sock, hello.kind)


def accept(listener: socket.socket, key: bytes, patience: float) -> tuple[socket.socket, Hello] | None:
    """The next connection that says the key; None if none came in time."""
    deadline = time.monotonic() + patience
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([listener], [], [], left)[0]:
            return None
        sock, _ = listener.accept()
        sock.settimeout(_HELLO_S)
        try:
            said = _exactly(sock, _HELLO.size)
        except OSError:
            sock.close()
            continue
        theirs, *rest = _HELLO.unpack(said)
        if hmac.compare_digest(theirs, key):
            hello = Hello(*rest)
            return _tuned(sock, hello.kind), hello
        sock.close()
    return None


def _exactly(sock: socket.socket, n: int) -> bytes:
    held = b""
    while len(held) < n:
        more = sock.recv(n - len(held))
        if not more:
            raise ConnectionError("closed")
        held += more
    return held


def _tuned(sock: socket.socket, kind: int) -> socket.socket:
    """Small messages at once; a host that has vanished is noticed.

    A line between launchers is nearly always at rest and always read, so there silence means that the host is gone. A
    worker may compute for long without reading, so its lines have no such limit.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, int(SILENT_S))
    if kind == HOST:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * SILENT_S))
    return sock


# -- waiting for a message; for the time before workers run


def tell(line: Line, message: Any) -> None:
    """Send, and wait until it has gone out.

    Raises:
        PeerGone: the other host has closed the line.
    """
    line.send(message)
    while not line.flush():
        select.select([], [line], [], 1.0)


def hear(line: Line, meanwhile: Callable[[], None] = lambda: None) -> Any:
    """The next message.

    Args:
        meanwhile: called now and then.

    Raises:
        PeerGone: the other host has closed the line.
    """
    while True:
        for message in line.receive():
            return message
        meanwhile()
        select.select([line], [], [], 0.5)


# -- tensors

Packed = tuple[torch.dtype, tuple[int, ...], bytes]


def packed(tensor: Tensor) -> Packed:
    """A tensor's bytes, contiguous, with what they mean."""
    flat = tensor.detach().contiguous().reshape(-1)
    return tensor.dtype, tuple(tensor.shape), flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def unpacked(held: Packed) -> Tensor:
    """The tensor, in memory of its own."""
    dtype, shape, data = held
    made = torch.empty(shape, dtype=dtype)
    if data:
        made.view(-1).view(torch.uint8).numpy()[:] = memoryview(data)  # type: ignore[call-overload]
    return made
