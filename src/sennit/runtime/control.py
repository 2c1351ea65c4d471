"""Small messages between processes: length-prefixed, never blocking, over socket pairs made before the fork.

A worker must keep receiving while it sends, or two workers that send to each other would wait for ever. So a
send only appends to an outbox, which is written as far as the socket takes it whenever the worker looks around.
"""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Iterator
from typing import Any

_HEAD = struct.Struct("<I")
_CHUNK = 1 << 18


class PeerGone(ConnectionError):
    """The other end has closed: that process has ended.

    Attributes:
        peer: its name.
    """

    def __init__(self, peer: str) -> None:
        super().__init__(f"{peer} has ended")
        self.peer = peer


class Line:
    """One end of a connection."""

    def __init__(self, sock: socket.socket, peer: str) -> None:
        sock.setblocking(False)
        self.sock, self.peer = sock, peer
        self.out = bytearray()
        self.inbox = bytearray()

    @staticmethod
    def pair(left: str, right: str) -> tuple[Line, Line]:
        """Two connected ends; `left` names the process that holds the first."""
        a, b = socket.socketpair()
        return Line(a, right), Line(b, left)

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, message: Any) -> None:
        """Queue a message; flushes as much as goes."""
        body = pickle.dumps(message, protocol=5)
        self.out += _HEAD.pack(len(body))
        self.out += body
        self.flush()

    def flush(self) -> bool:
        """Write what the socket takes. Returns whether nothing is left.

        Raises:
            PeerGone: the other end has closed.
        """
        while self.out:
            try:
                sent = self.sock.send(memoryview(self.out)[:_CHUNK])
            except BlockingIOError:
                return False
            except OSError as error:
                raise PeerGone(self.peer) from error
            del self.out[:sent]
        return True

    def receive(self) -> Iterator[Any]:
        """Messages that have arrived.

        Raises:
            PeerGone: the other end has closed, and everything it sent has been handed out.
        """
        gone = False
        while True:
            try:
                data = self.sock.recv(_CHUNK)
            except BlockingIOError:
                break
            except OSError:  # reset, or another host that does not answer
                gone = True
                break
            if not data:
                gone = True
                break
            self.inbox += data
        while len(self.inbox) >= _HEAD.size:
            (length,) = _HEAD.unpack_from(self.inbox)
            if len(self.inbox) < _HEAD.size + length:
                break
            body = bytes(memoryview(self.inbox)[_HEAD.size : _HEAD.size + length])
            del self.inbox[: _HEAD.size + length]
            yield pickle.loads(body)
        if gone:
            raise PeerGone(self.peer)

    def close(self) -> None:
        self.sock.close()
