"""`Process`: a worker as its launcher sees it; lines between workers; how a process has died."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sennit.memory.tally import Tally
from sennit.runtime.control import Line

KILLED_WAIT_S = 5.0
"""How long to wait for killed processes to be gone, seconds."""


@dataclass
class Process:
    """A worker, as the launcher sees it.

    Attributes:
        pid: 0 if it is another launcher's child.
        gone: it has ended and is buried, or is not ours to bury.
    """

    rank: int
    pid: int
    line: Line
    ready: bool = False
    cut: int = -1
    quiet: tuple[int, str] | None = None
    paused: int | None = None
    busy: float = 0.0
    counted: Tally | None = None
    gone: bool = False
    error: dict[str, Any] | None = None

    def bury(self) -> bool:
        """Whether it has ended."""
        if not self.gone:
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(self.pid, os.WNOHANG)[0] == 0:
                    return False
            self.gone = True
        return True


def bury(processes: Sequence[Process], seconds: float) -> None:
    """Wait until all have ended, but no longer than that."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not [process for process in processes if not process.bury()]:
            return
        time.sleep(0.002)


def pairs(ranks: Sequence[int]) -> dict[int, dict[int, Line]]:
    """Of each worker, its line to each other one of this host."""
    lines: dict[int, dict[int, Line]] = {rank: {} for rank in ranks}
    for a in ranks:
        for b in ranks:
            if a < b:
                lines[a][b], lines[b][a] = Line.pair(f"worker {a}", f"worker {b}")
    return lines


def death(status: int) -> str:
    """What `waitpid` says, in words."""
    if os.WIFSIGNALED(status):
        return f"was killed by signal {signal.Signals(os.WTERMSIG(status)).name}"
    return f"ended with exit code {os.waitstatus_to_exitcode(status)}"
