"""The launcher: starts one process per worker, lets them run to the next cut, and hears what they say.

It decides nothing about order. It hands out the stream of a learning sampler, raises the limit up to which
subnets may run, and writes a checkpoint when all workers have finished everything below it:

    limit 50 ─▶ workers run 0..49 ─▶ "cut" from each ─▶ checkpoint ─▶ limit 100 ─▶ ...

A worker that raises or dies ends the run: all others are killed at once and one message is given. A worker
whose launcher dies is killed by the kernel; shared memory is anonymous; so nothing can be left behind.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sennit.errors import BudgetError, HaltError, NanLossError, RunError, SubnetError, UserError
from sennit.memory.tally import Tally
from sennit.runtime.channel import Arena
from sennit.runtime.child import run_worker
from sennit.runtime.control import Line, PeerGone
from sennit.runtime.forked import fork
from sennit.runtime.process import KILLED_WAIT_S, Process, bury, death, pairs
from sennit.runtime.results import Results
from sennit.runtime.segment import Segment
from sennit.runtime.share import Share
from sennit.runtime.stall import STALL_S
from sennit.supernet.samplers import Feed, Result


@dataclass
class Crew:
    """The worker processes of one run on this host.

    Args:
        share: what they inherit.
        logs: the access log, which all workers append to.
        feed: of a learning sampler; None if workers draw for themselves.
        on_result: told each subnet's result, in order of seq id.
        inherited: open files that workers must close: locks that end with this process.
    """

    share: Share
    logs: Path
    feed: Feed | None = None
    on_result: Callable[[Result], None] = lambda result: None
    processes: list[Process] = field(default_factory=list)
    again: dict[int, int] = field(default_factory=dict)
    """Of each worker whose device was full, how many tasks have run again."""
    unpinned: str = ""
    """Why a worker could not pin the host's memory."""
    results: Results = field(init=False)
    inherited: list[int] = field(default_factory=list)
    halted: HaltError | None = None
    """The first subnet that cannot be trained, and why."""
    said: int = 0
    """Messages sent to every worker."""
    norms: dict[int, dict[str, float]] = field(default_factory=dict)

    # -- starting and ending

    def start(self) -> None:
        """Fork the workers, and wait until each has its device, store and channel.

        Raises:
            UserError, RunError: as `run_to`.
        """
        n = self.share.placement.workers
        lines = pairs(range(n))
        ends = [Line.pair("launcher", f"worker {rank}") for rank in range(n)]
        pids = self.fork({rank: (lines[rank], ends[rank][1]) for rank in range(n)}, [front for front, _ in ends])
        self.processes += [Process(rank, pid, ends[rank][0]) for rank, pid in pids.items()]
        self.await_ready()

    def fork(self, ends: dict[int, tuple[dict[int, Line], Line]], ours: list[Line]) -> dict[int, int]:
        """Fork workers.

        Args:
            ends: of each worker, its lines to the others and its line to the launcher. Closed here.
            ours: lines that workers must not hold.

        Returns:
            Their process ids.
        """
        theirs = {rank: [*lines.values(), launcher] for rank, (lines, launcher) in ends.items()}
        arenas = [Arena() for _ in range(self.share.placement.workers)]
        pids: dict[int, int] = {}
        gc.collect()
        gc.freeze()  # what workers inherit is not theirs to collect: looking at it would copy its pages
        parent = os.getpid()
        for rank, (lines, launcher) in ends.items():
            pid = fork()
            if not pid:
                for handle in self.inherited:
                    os.close(handle)
                others = [*ours, *(line for r, held in theirs.items() if r != rank for line in held)]
                run_worker(rank, self.share, lines, arenas, launcher, others, self.logs, parent)
            pids[rank] = pid
        gc.unfreeze()
        for held in theirs.values():
            for line in held:
                line.close()
        return pids

    def await_ready(self) -> None:
        """Wait until each worker has its device, store and channel."""
        self.results = Results(self.share.start, self.share.recipe.micro_batches, self.feed, self.on_result)
        while not all(process.ready for process in self.processes):
            self.hear()

    def end(self) -> None:
        """Tell the workers to stop, and see that they are gone."""
        for process in self.processes:
            with contextlib.suppress(PeerGone):
                process.line.send(("stop",))
        bury(self.processes, KILLED_WAIT_S)
        self.kill()

    def kill(self) -> None:
        """Kill whoever is still there."""
        for process in self.processes:
            if not process.gone:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
        bury(self.processes, KILLED_WAIT_S)
        for process in self.processes:
            process.line.close()

    # -- running

    def run_to(self, limit: int, interrupted: Callable[[], bool]) -> Segment:
        """Let all subnets below `limit` run.

        Args:
            interrupted: whether the user wants to stop; the segment then ends as early as it can.

        Raises:
            RunError: a worker died.
            UserError: a worker met bad input.
            HaltError: a loss is not finite, a subnet does not fit into the budget, or its program is refused; the
                workers have come to rest.
        """
        begin = time.perf_counter()
        self.broadcast(("limit", limit))
        pausing = False
        while True:
            for seq_id, arch in self.results.draw(limit, self.share.in_flight):
                self.broadcast(("arch", seq_id, arch))  # drawn subnets wait in the workers' mailboxes
            if interrupted() and not pausing:
                pausing = True
                self.broadcast(("pause",))
            self.hear()
            self.end_if_stalled(limit)
            if pausing and all(p.paused is not None for p in self.processes):
                reached = max(p.paused for p in self.processes if p.paused is not None)
                limit = min(limit, -(-reached // self.share.bulk) * self.share.bulk)
                for process in self.processes:
                    process.paused = None
                self.broadcast(("limit", limit))
            if self.halted is not None:
                limit = min(limit, self.halted.seq_id)
            if all(p.cut >= limit for p in self.processes) and (self.halted or self.results.next >= limit):
                break
        if self.halted is not None:
            raise self.halted
        return Segment(limit, time.perf_counter() - begin)

    @property
    def busy(self) -> float:
        """Seconds that workers spent in tasks, all together."""
        return sum(process.busy for process in self.processes)

    @property
    def counted(self) -> Tally | None:
        """What came of the slots of all workers; None without a budget."""
        found = [process.counted for process in self.processes if process.counted is not None]
        if not found:
            return None
        total = Tally()
        for tally in found:
            total.add(tally)
        return total

    def end_if_stalled(self, limit: int) -> None:
        """If no worker can go on, end the run and say what each waits for.

        Raises:
            RunError: all workers have heard everything and have been at rest for long.
        """
        if all(p.quiet is not None and p.quiet[0] == self.said for p in self.processes):
            self.kill()
            told = "\n".join(f"  worker {p.rank} waits for {p.quiet[1]}" for p in self.processes if p.quiet)
            raise RunError(
                f"no worker has had anything to do for {STALL_S:g} s, and the subnets below {limit} are not done:\n"
                f"{told}\nall workers were stopped"
            )

    def broadcast(self, message: Any) -> None:
        self.said += 1
        for process in self.processes:
            try:
                process.line.send(message)
            except PeerGone:
                self.lost(process)

    def hear(self) -> None:
        """Take in what workers say; notice the dead."""
        writing = [p.line for p in self.processes if p.line.out]
        readable, _, _ = select.select([p.line for p in self.processes], writing, [], 0.1)
        for process in self.processes:
            try:
                process.line.flush()
                if process.line in readable:
                    for kind, *rest in process.line.receive():
                        process.quiet = None
                        self.on_message(process, kind, rest)
            except PeerGone:
                self.lost(process)

    def on_message(self, process: Process, kind: str, rest: list[Any]) -> None:
        if kind == "loss":
            self.results.add(*rest)
        elif kind == "ready":
            process.ready = True
        elif kind == "again":
            self.again[rest[0]] = rest[1]
        elif kind == "unpinned":
            self.unpinned = rest[0]
        elif kind == "norm":
            self.norms.setdefault(rest[0], {})[rest[1]] = rest[2]
        elif kind == "cut":
            process.cut, process.busy, process.counted = rest
        elif kind == "quiet":
            process.quiet = (rest[0], rest[1])
        elif kind == "paused":
            process.paused = rest[0]
        elif kind == "nan":
            self.halt(self.results.not_finite(*rest))
        elif kind == "short":
            self.halt(BudgetError(rest[1], rest[0]))
        elif kind == "unfit":
            self.halt(SubnetError(rest[1], rest[0]))
        elif kind == "error":
            process.error = rest[0]
            self.fail(process)

    def halt(self, error: HaltError) -> None:
        """A subnet cannot be trained: finish those before it, and begin none after."""
        if self.halted is None or error.seq_id < self.halted.seq_id:
            self.halted = error
            for process in self.processes:  # what they said of a cut was before they came to rest
                process.cut = -1
            self.broadcast(("halt", error.seq_id))
        elif (
            isinstance(error, NanLossError)
            and isinstance(self.halted, NanLossError)
            and error.place < self.halted.place
        ):
            self.halted = error  # another worker's, and earlier in the subnet at which all have been told to halt

    def lost(self, process: Process) -> None:
        """A worker's line is closed: it said why, or it was killed. What it said may not have been read yet."""
        with contextlib.suppress(PeerGone):
            for kind, *rest in process.line.receive():
                if kind == "error":
                    process.error = process.error or rest[0]
        if process.error is None and (reason := self.cause_of_death(process)) is not None:
            process.error = {"kind": "died", "text": reason}
        self.fail(process)

    def cause_of_death(self, process: Process) -> str | None:
        """How a worker ended that did not say it itself."""
        with contextlib.suppress(ChildProcessError):
            _, status = os.waitpid(process.pid, 0)
            process.gone = True
            return death(status)
        return None

    def told(self) -> dict[str, Any]:
        """What belongs into `result.json` beside what every run has."""
        found: dict[str, Any] = {"tasks_run_again": sum(self.again.values())} if self.again else {}
        if self.unpinned:
            found |= {"pinned": False, "pinning_refused": self.unpinned}
        elif self.share.placement.device == "cuda":
            found["pinned"] = True
        return found

    def name(self, process: Process) -> str:
        """A worker, in messages."""
        return f"worker {process.rank}"

    def fail(self, process: Process) -> None:
        """End everything and raise the one error."""
        self.kill()
        error = process.error or {"kind": "died", "text": "ended without a word"}
        if error["kind"] == "user":
            raise UserError(error["text"])
        where = self.name(process)
        if error["kind"] == "died":
            raise RunError(f"{where} {error['text']}; all workers were stopped")
        calls = f"{error['trace']}\n" if error["trace"] else ""
        raise RunError(f"{where} failed{error['place']}: {error['text']}\n{calls}all workers were stopped")
