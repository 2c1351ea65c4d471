"""`Crew`: what a worker said before it ended is what the user is told, however its end is noticed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sennit.errors import RunError, UserError
from sennit.runtime.control import Line
from sennit.runtime.launcher import Crew
from sennit.runtime.process import Process

TOLD = {"kind": "user", "text": "a loader process was killed", "trace": "", "place": ""}


def broadcast(crew: Crew) -> None:
    crew.broadcast(("limit", 50))


def hear(crew: Crew) -> None:
    crew.hear()


def hear_with_something_unsent(crew: Crew) -> None:
    crew.processes[0].line.out += b"what the socket did not take before"
    crew.hear()


@pytest.mark.parametrize("notice", [broadcast, hear, hear_with_something_unsent])
@pytest.mark.parametrize("told", [TOLD, None])
def test_a_worker_that_has_ended_is_quoted(
    notice: Callable[[Crew], None], told: dict[str, Any] | None, tmp_path: Path
) -> None:
    ours, theirs = Line.pair("launcher", "worker 0")
    pid = os.fork()
    if not pid:
        ours.close()
        if told is not None:
            theirs.send(("ready",))
            theirs.send(("error", told))
        os._exit(1)
    theirs.close()
    crew = Crew(share=None, logs=tmp_path / "access.jsonl", processes=[Process(0, pid, ours)])  # type: ignore[arg-type]
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    if told is None:
        with pytest.raises(RunError, match="worker 0 ended with exit code 1; all workers were stopped"):
            notice(crew)
    else:
        with pytest.raises(UserError, match="a loader process was killed"):
            notice(crew)
