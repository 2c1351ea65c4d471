"""`HostsCrew`: host 0's launcher. As on one host, but for workers whose process is another launcher's child."""

from __future__ import annotations

import contextlib
import select
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sennit.errors import HaltError, RunError, UserError
from sennit.runtime.control import Line, PeerGone
from sennit.runtime.hosts.meeting import Meeting, noticing
from sennit.runtime.hosts.mesh import mesh
from sennit.runtime.hosts.shipping import Shipping
from sennit.runtime.hosts.wire import packed, tell
from sennit.runtime.launcher import Crew
from sennit.runtime.process import KILLED_WAIT_S, Process, pairs
from sennit.runtime.segment import Segment, State
from sennit.supernet.hashes import hash_tensors
from sennit.trace.events import trace_beside

LAST_WORDS_S = 3.0
"""How long to wait for what another host's launcher says of a worker's death, seconds."""


@dataclass
class HostsCrew(Crew):
    """The workers of all hosts.

    Args:
        state: of the checkpoint that the run goes on from; None at the start.
    """

    meeting: Meeting = None  # type: ignore[assignment]
    state: State | None = None
    deaths: dict[int, str] = field(default_factory=dict)
    figures: dict[int, dict[str, float]] = field(default_factory=dict)
    gather_s: float = 0.0
    gathered: set[int] = field(default_factory=set)

    # -- starting and ending

    def start(self) -> None:
        with noticing():
            self._start()

    def _start(self) -> None:
        share, meeting = self.share, self.meeting
        assert share.hosts is not None
        self.shipping = Shipping(share.host)
        self.shipping.begin()
        self.begin()
        for line in meeting.lines.values():
            tell(line, ("connect", meeting.addresses))
        made, mine = mesh(meeting, share.hosts, {}), share.hosts.on(0)
        lines = {rank: {**table, **made.peers[rank]} for rank, table in pairs(mine).items()}
        ends = {rank: Line.pair("launcher", f"worker {rank}") for rank in mine}
        ours = [front for front, _ in ends.values()] + [*made.launchers.values(), *meeting.lines.values()]
        self.inherited = [*self.inherited, meeting.listener.fileno()]
        pids = self.fork({rank: (lines[rank], ends[rank][1]) for rank in mine}, ours)
        self.processes += [Process(rank, pid, ends[rank][0]) for rank, pid in pids.items()]
        self.processes += [Process(r, 0, line, gone=True) for r, line in sorted(made.launchers.items())]
        self.await_ready()

    def begin(self) -> None:
        """Tell the other hosts where to begin, and wait until they are there.

        Raises:
            UserError: one of them has other weights to begin with.
        """
        share = self.share
        told = {
            "start": share.start, "placement": asdict(share.placement), "costs": share.built.block_s,
            "origin": share.board.origin, "versions": None if self.state is None else self.state.versions,
        }  # fmt: skip
        for line in self.meeting.lines.values():
            tell(line, ("begin", told))
            if self.state is not None:
                for kind, tensors in (("weights", self.state.weights), ("optimizer", self.state.optimizer)):
                    for name in tensors:
                        tell(line, ("tensor", kind, name, packed(tensors[name])))
                tell(line, ("whole",))
        mine = hash_tensors(share.host.weights())
        for host, line in self.meeting.lines.items():
            kind, *rest = self.meeting.hear(line)
            if kind != "built":
                raise UserError(f"host {host}: {rest[0]}")
            if rest[0] != mine:
                raise UserError(
                    f"host {host} initialises other weights than host 0, so the run would depend on where layers are: "
                    "use hosts with the same processor and the same torch"
                )

    def end(self) -> None:
        for process in self.processes:
            with contextlib.suppress(PeerGone):
                process.line.send(("stop",))
        self._hear_out([p for p in self.processes if not p.pid])
        super().end()

    def _hear_out(self, far: list[Process]) -> None:
        """Read on until workers elsewhere have closed: what is closed with something unread loses what it sent last."""
        deadline = time.monotonic() + KILLED_WAIT_S
        while far and time.monotonic() < deadline:
            select.select([p.line for p in far], [], [], 0.1)
            for process in list(far):
                try:
                    process.line.flush()
                    list(process.line.receive())
                except PeerGone:
                    far.remove(process)

    # -- running

    def run_to(self, limit: int, interrupted: Callable[[], bool]) -> Segment:
        try:
            segment = super().run_to(limit, interrupted)
        except HaltError as error:
            self.gather(error.seq_id, halted=True)
            raise
        self.gather(segment.limit, halted=False)
        return segment

    def gather(self, limit: int, halted: bool) -> None:
        """Have everything here that is newer elsewhere. All workers rest."""
        begin = time.perf_counter()
        self.gathered.clear()
        self.broadcast(("gather", limit, halted))
        while len(self.gathered) < len(self.processes):
            self.hear()
        self.gather_s += time.perf_counter() - begin

    def hear(self) -> None:
        super().hear()
        for host, line in self.meeting.lines.items():
            try:
                for kind, *rest in line.receive():
                    self.on_host(host, kind, rest)
            except PeerGone:
                self.lost_host(host)

    def on_host(self, host: int, kind: str, rest: list[Any]) -> None:
        """What another launcher says."""
        if kind == "died":
            self.deaths[rest[0]] = rest[1]
        elif kind == "clock":
            tell(self.meeting.lines[host], ("clock", time.monotonic()))
        elif kind == "interrupt":
            signal.raise_signal(signal.SIGTERM)  # asks to stop at the next cut, as here
        elif kind == "refused":
            self.kill()
            raise RunError(f"host {host}: {rest[0] or 'has ended'}; all workers were stopped")

    def on_message(self, process: Process, kind: str, rest: list[Any]) -> None:
        if kind == "version":
            if rest[0].key > self.shipping.key(rest[0].group):
                self.shipping.put(rest[0])
        elif kind == "gradient":
            self.shipping.put_gradient(*rest)
        elif kind == "lines":
            name, data = rest
            _append(self.logs if name == self.logs.name else trace_beside(self.logs), data)
        elif kind == "gathered":
            self.gathered.add(process.rank)
            self.figures[process.rank] = rest[0]
        else:
            super().on_message(process, kind, rest)

    def told(self) -> dict[str, Any]:
        assert self.share.hosts is not None
        total = {key: sum(f[key] for f in self.figures.values()) for key in next(iter(self.figures.values()), {})}
        return {**super().told(), "hosts": {"hosts": self.share.hosts.count, **total, "gather_s": self.gather_s}}

    # -- deaths

    def name(self, process: Process) -> str:
        assert self.share.hosts is not None
        return f"worker {process.rank} on host {self.share.hosts.of(process.rank)}"

    def cause_of_death(self, process: Process) -> str | None:
        if process.pid:
            return super().cause_of_death(process)
        assert self.share.hosts is not None
        host = self.share.hosts.of(process.rank)
        line, deadline = self.meeting.lines[host], time.monotonic() + LAST_WORDS_S
        while process.rank not in self.deaths and time.monotonic() < deadline:
            try:
                for kind, *rest in line.receive():
                    if kind == "died":
                        self.deaths[rest[0]] = rest[1]
            except PeerGone:
                return "has ended: its host has, too, or does not answer"
            select.select([line], [], [], 0.05)
        return self.deaths.get(process.rank, "has closed its line, and its host says nothing of its death")

    def lost_host(self, host: int) -> None:
        """Another launcher has ended, or its host does not answer."""
        self.kill()
        raise RunError(f"host {host} has ended, or does not answer; all workers were stopped")


def _append(path: Path, data: bytes) -> None:
    try:
        with path.open("ab") as file:
            file.write(data)
    except OSError as error:
        raise RunError(f"{path} could not be written: {error.strerror}") from error
