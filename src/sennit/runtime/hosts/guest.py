"""`follow`: the launcher of a host that is not host 0. It does as host 0 says, and keeps no run folder."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from sennit.errors import UserError
from sennit.recipe import Placement, use_recipe
from sennit.runtime.control import Line
from sennit.runtime.fingerprint import fingerprint
from sennit.runtime.forked import in_child
from sennit.runtime.hosts.hosts import Hosts
from sennit.runtime.hosts.meeting import Meeting, noticing, raise_end
from sennit.runtime.hosts.mesh import mesh
from sennit.runtime.hosts.options import refuse_other_options
from sennit.runtime.hosts.shipping import Shipping
from sennit.runtime.hosts.wire import hear, tell, unpacked
from sennit.runtime.launcher import Crew
from sennit.runtime.pipeline import Pipeline
from sennit.runtime.process import KILLED_WAIT_S, Process, bury, death, pairs
from sennit.runtime.refuse import check
from sennit.runtime.request import Request
from sennit.runtime.segment import State
from sennit.supernet.hashes import hash_tensors


class NothingLeft(Exception):
    """Host 0 has ended well before anything ran: all subnets were there already."""


def follow(request: Request, meeting: Meeting, note: Callable[[str], None] = lambda text: None) -> None:
    """Run this host's workers until host 0 says that it is over.

    Args:
        request: the same as host 0's, but that the run's folder and the plan are there.

    Raises:
        UserError, RunError, Interrupted: as host 0.
    """
    line = meeting.lines[0]
    with (
        contextlib.suppress(NothingLeft),
        noticing(),
        tempfile.TemporaryDirectory(prefix="sennit-", ignore_cleanup_errors=True) as folder,
    ):
        use_recipe(request.recipe)
        brief = _expect("brief", line)[0]
        placement = _placement(brief, Path(folder))
        if brief["identity"] != request.recipe.identity():
            raise UserError("its recipe is not host 0's; start all hosts with the same file")
        refuse_other_options(brief["options"], request)
        check(replace(request, placement=placement, out=None, resume=True))
        tell(line, ("checked", request.recipe.built.sources, in_child(lambda: fingerprint(placement.device))))
        note(f"host {meeting.here} of {meeting.count}: checked; host 0 has the run folder")
        told = _expect("begin", line)[0]
        state = None if told["versions"] is None else _state(line, told["versions"])
        hosts = meeting.hosts(placement.workers)
        request.recipe.built.block_s = told["costs"]
        settled = replace(Placement(**told["placement"]), plan=placement.plan)  # as host 0 has settled it
        pipeline = Pipeline(
            request.recipe, settled, Path(folder) / "access.jsonl", told["start"], state,
            meeting=meeting, hosts=hosts,
        )  # fmt: skip
        if brief["plan"] is not None:
            Path(str(placement.plan)).unlink()  # is read
        crew = pipeline.crew
        assert isinstance(crew, GuestCrew)
        crew.share.board.origin = told["origin"] + hosts.offset
        tell(line, ("built", hash_tensors(pipeline.store.weights())))
        crew.addresses = {**_expect("connect", line)[0], 0: meeting.addresses[0]}
        try:
            crew.start()
            note(f"host {meeting.here} of {meeting.count}: workers {list(hosts.on(hosts.here))} run")
            how = crew.serve()
        finally:
            crew.kill()
            crew.share.bells.close()
        raise_end(how)


@dataclass
class GuestCrew(Crew):
    """The workers of this host; their lines lead to host 0's launcher."""

    meeting: Meeting = None  # type: ignore[assignment]
    hosts: Hosts = None  # type: ignore[assignment]
    addresses: dict[int, tuple[str, int]] = None  # type: ignore[assignment]

    def start(self) -> None:
        Shipping(self.share.host).begin()
        made = mesh(self.meeting, self.hosts, self.addresses)
        mine = pairs(self.hosts.on(self.hosts.here))
        ends = {rank: ({**table, **made.peers[rank]}, made.launchers[rank]) for rank, table in mine.items()}
        self.inherited = [self.meeting.listener.fileno()]
        pids = self.fork(ends, list(self.meeting.lines.values()))
        self.processes = [Process(rank, pid, made.launchers[rank]) for rank, pid in pids.items()]

    def serve(self) -> tuple[str, str] | None:
        """Bury workers, and tell host 0 how they died, until it says that it is over.

        Returns:
            What it says: kind and text of an error, or None.

        Raises:
            PeerGone: host 0 has ended.
        """
        line = self.meeting.lines[0]
        with _signals() as asked:
            while True:
                select.select([line], [], [], 0.1)
                if asked:
                    line.send(("interrupt", asked.pop()))
                line.flush()
                for kind, *rest in line.receive():
                    if kind == "end":
                        if rest[0] is None:
                            bury(self.processes, KILLED_WAIT_S)
                        return rest[0]
                self.bury()

    def bury(self) -> None:
        """Tell host 0 of workers that have died."""
        for process in self.processes:
            if not process.gone:
                with contextlib.suppress(ChildProcessError):
                    pid, status = os.waitpid(process.pid, os.WNOHANG)
                    if pid:
                        process.gone = True
                        self.meeting.lines[0].send(("died", process.rank, death(status)))


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM ask host 0 to stop at the next cut: they come up in the list. A second one ends this host."""
    asked: list[int] = []
    seen: list[int] = []

    def handle(number: int, frame: Any) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(number)
        asked.append(number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _expect(kind: str, line: Line) -> list[Any]:
    """The next message, which host 0 may have replaced by the end."""
    found, *rest = hear(line)
    if found == "end":
        raise_end(rest[0])
        raise NothingLeft
    assert found == kind, (found, kind)
    return rest


def _placement(brief: dict[str, Any], folder: Path) -> Placement:
    """Host 0's, with its plan in a file here."""
    placement = Placement(**brief["placement"])
    if brief["plan"] is None:
        return placement
    path = folder / Path(str(placement.plan)).name
    path.write_text(brief["plan"], encoding="utf-8")
    return replace(placement, plan=str(path))


def _state(line: Line, versions: dict[str, list[int]]) -> State:
    """A checkpoint's, as it comes."""
    held: dict[str, dict[str, Tensor]] = {"weights": {}, "optimizer": {}}
    while True:
        kind, *rest = hear(line)
        if kind == "whole":
            return State(held["weights"], held["optimizer"], versions)
        where, name, tensor = rest
        held[where][name] = unpacked(tensor)
