"""`Meeting`: the launchers of all hosts find each other, agree on the run, and end together.

    host 0                                   host h
    port, key ──▶ torch's store ───────────▶ connect              (finding.py)
    "brief": recipe's identity, options ───▶ the same? ── check it
             ◀───────────── "checked": sources, fingerprint        (or "refused": why)
    "begin": start, state, costs ──────────▶ store, plan
             ◀───────────────────── "built": hash of weights
    "connect": addresses ──────────────────▶ lines between workers (mesh.py), workers
             ...
    "end": how ────────────────────────────▶ the same there
             each listens on until the other has closed (`part`)

Of the environment only what `torchrun` sets is read.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from sennit.errors import Interrupted, RunError, UserError, why
from sennit.runtime.control import Line, PeerGone
from sennit.runtime.fingerprint import different
from sennit.runtime.hosts.finding import Note, Waiting, find
from sennit.runtime.hosts.hosts import Hosts, refuse
from sennit.runtime.hosts.options import options_of
from sennit.runtime.hosts.wire import HOST, Hello, accept, connect, hear, listen, tell

PATIENCE_S = 300.0
"""How long to wait for the other hosts to come, seconds."""

PART_S = 3.0
"""How long to wait at the end until the other hosts have heard of it, seconds."""


def told_of_hosts(environment: Mapping[str, str]) -> bool:
    """Whether `torchrun` has started this process as one of several.

    Raises:
        UserError: with more than one launcher per host.
    """
    if int(environment.get("WORLD_SIZE", "1")) <= 1 or "RANK" not in environment:
        return False
    if (local := environment.get("LOCAL_WORLD_SIZE", "1")) != "1":
        raise UserError(
            f"one launcher per host starts all workers there, torchrun has started {local}: use --nproc-per-node 1, "
            "and say with --workers how many workers all hosts have together"
        )
    return True


@dataclass
class Meeting:
    """One host's ends of the lines between launchers. Used as a context manager; leaving it tells the others how.

    Attributes:
        here, count: which host this is, of how many.
        lines: on host 0 to every other host, elsewhere to host 0.
        addresses: where other hosts take connections, as host 0 sees them; for host 0's eyes.
        fingerprints: on host 0, of the others.
    """

    here: int
    count: int
    key: bytes
    listener: socket.socket
    lines: dict[int, Line]
    addresses: dict[int, tuple[str, int]] = field(default_factory=dict)
    fingerprints: dict[int, dict[str, Any]] = field(default_factory=dict)

    @staticmethod
    def of_environment(
        environment: Mapping[str, str], patience: float = PATIENCE_S, note: Note = lambda text: None
    ) -> Meeting:
        """Meet the other hosts that `torchrun` has started.

        Args:
            note: told who is waited for.

        Raises:
            UserError: another process has this host's number.
            RunError: they do not come, or cannot be reached.
        """
        found = find(environment, patience, note)
        if found.listener is None:
            return Meeting.join(found.here, found.count, found.address, found.key)
        with _closed_if_failed(found.listener):
            return Meeting.await_others(found.count, found.listener, found.key, patience, found.where, note)

    @staticmethod
    def await_others(
        count: int, listener: socket.socket, key: bytes, patience: float = PATIENCE_S, where: str = "",
        note: Note = lambda text: None,
    ) -> Meeting:  # fmt: skip
        """Host 0: wait for the others."""
        meeting = Meeting(0, count, key, listener, {})
        at = f" at {where}" if where else ""
        waiting = Waiting("", patience, note)
        while missing := [host for host in range(1, count) if host not in meeting.lines]:
            waiting.who = f"host{'s' * (len(missing) > 1)} {', '.join(map(str, missing))} of {count}{at}"
            came = accept(listener, key, min(1.0, waiting.look()))
            if came is None:
                continue
            sock, hello = came
            line = Line(sock, f"host {hello.source}")
            if hello.kind != HOST or hello.source not in missing:
                turn_away(line, hello.source)
                continue
            address = sock.getpeername()[0].removeprefix("::ffff:")  # IPv4, seen through a socket of both
            meeting.addresses[hello.source] = (address, hello.port)
            meeting.lines[hello.source] = line
        return meeting

    @staticmethod
    def join(here: int, count: int, address: tuple[str, int], key: bytes) -> Meeting:
        """Another host: connect to host 0."""
        listener = listen()
        with _closed_if_failed(listener):
            sock = connect(address, key, Hello(HOST, here, 0, listener.getsockname()[1]))
        return Meeting(here, count, key, listener, {0: Line(sock, "host 0")}, {0: address})

    # -- host 0

    def brief(self, request: Any) -> None:
        """Tell the others what will be run.

        Raises:
            UserError: it does not run on several hosts.
        """
        placement = request.placement
        refuse(request.recipe, placement, request.engine, self.count)
        plan = None if placement.plan is None else _text(Path(placement.plan))
        told = {
            "identity": request.recipe.identity(), "placement": asdict(placement), "plan": plan,
            "options": options_of(request),
        }  # fmt: skip
        with noticing():
            for line in self.lines.values():
                tell(line, ("brief", told))

    def agree(self, sources: dict[str, str]) -> None:
        """Wait until all have checked the recipe.

        Raises:
            UserError: one of them refuses, or has other code.
            RunError: one of them has gone.
        """
        for host, line in self.lines.items():
            kind, *rest = self.hear(line)
            if kind == "refused":
                raise UserError(f"host {host}: {rest[0]}")
            theirs, self.fingerprints[host] = rest
            if changed := sorted(k for k in {*theirs, *sources} if theirs.get(k) != sources.get(k)):
                raise UserError(f"host {host} has other code: {', '.join(changed)}; put the same files on all hosts")

    def differences(self, fingerprint: dict[str, Any]) -> list[str]:
        """Where the others' fingerprints differ from this one."""
        theirs = sorted(self.fingerprints.items())
        return [f"host {host}: {what}" for host, held in theirs for what in different(held, fingerprint)]

    def hear(self, line: Line) -> Any:
        """The next message of a host, while others wait.

        Raises:
            RunError: the host has gone.
        """
        with noticing():
            while True:
                kind, *rest = hear(line)
                if kind != "clock":
                    return (kind, *rest)
                tell(line, ("clock", time.monotonic()))

    def hosts(self, workers: int) -> Hosts:
        """Which worker is on which host; elsewhere than on host 0, with the clocks compared."""
        return Hosts(self.here, self.count, workers, self._offset() if self.here else 0.0)

    def _offset(self) -> float:
        """This clock minus host 0's, from the fastest of some questions."""
        best, offset = float("inf"), 0.0
        for _ in range(10):
            asked = time.monotonic()
            tell(self.lines[0], ("clock",))
            _, theirs = hear(self.lines[0])
            now = time.monotonic()
            if now - asked < best:
                best, offset = now - asked, (asked + now) / 2 - theirs
        return offset

    # -- the end

    def __enter__(self) -> Meeting:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        """Tell the others how it ended: host 0 all of them, another one host 0."""
        how = None if error is None else (_kind(error), str(error) or type(error).__name__)
        for line in self.lines.values():
            with contextlib.suppress(PeerGone):
                tell(line, ("refused", how and how[1]) if self.here else ("end", how))
        part(self.lines.values())
        self.listener.close()


@contextlib.contextmanager
def _closed_if_failed(listener: socket.socket) -> Iterator[None]:
    try:
        yield
    except BaseException:
        listener.close()
        raise


def turn_away(line: Line, host: int) -> None:
    """Tell a launcher that comes under a number which another has that there is no place for it."""
    text = f"host {host} is here already, or there is no such host: give each a --node-rank of its own"
    with contextlib.suppress(PeerGone):
        tell(line, ("end", ("user", text)))
    line.close()


@contextlib.contextmanager
def noticing() -> Iterator[None]:
    """The end of another host, as an error.

    Raises:
        RunError: a line was closed.
    """
    try:
        yield
    except PeerGone as gone:
        raise RunError(f"{gone.peer} has ended, or does not answer; all workers were stopped") from gone


def part(lines: Iterable[Line], patience: float = PART_S) -> None:
    """Close lines whose last word has been said.

    What is closed with something unread, or written to once it is closed, resets the connection, and the other end may
    lose that word. So nothing more is said, and the others are heard until they close.
    """
    left = [line for line in lines if line.fileno() >= 0]  # where workers were killed, they are closed
    deadline = time.monotonic() + patience
    for line in left:
        with contextlib.suppress(OSError):
            line.sock.shutdown(socket.SHUT_WR)
    while left and (longest := deadline - time.monotonic()) > 0:
        for line in select.select(left, [], [], longest)[0]:
            try:
                for _ in line.receive():
                    pass
            except PeerGone:
                line.close()
                left.remove(line)
    for line in left:
        line.close()


def _kind(error: BaseException) -> str:
    if isinstance(error, Interrupted | KeyboardInterrupt):
        return "interrupted"
    return "user" if isinstance(error, UserError) else "failed"


def raise_end(how: tuple[str, str] | None) -> None:
    """Raise here what host 0 has raised."""
    if how is not None:
        kind, text = how
        raise {"interrupted": Interrupted, "user": UserError}.get(kind, RunError)(text)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the plan {path}: {why(error)}") from error
