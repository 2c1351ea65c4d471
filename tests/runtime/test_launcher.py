"""`Crew`: what a worker said before it ended is what the user is told, however its end is noticed."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from sennit.errors import NanLossError, RunError, UserError
from sennit.runtime.control import Line
from sennit.runtime.launcher import Crew
from sennit.runtime.process import Process
from sennit.runtime.results import Results

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


NOT_FINITE: list[tuple[list[Any], str]] = [
    ([5, 0, math.nan, []], "5 is nan in micro-batch 0"),
    ([5, 1, math.nan, [0]], "5 is nan in micro-batch 1, maybe not the first: 1 before it was not waited for"),
    ([5, 3, math.inf, [0, 2]], "5 is inf in micro-batch 3, maybe not the first: 2 before it were not waited for"),
    ([6, 0, math.nan, []], "6 is nan in micro-batch 0"),
]
"""What workers say, with the micro-batches before it that they have not seen; what is told of the first of all."""


def told_after(messages: list[tuple[str, list[Any]]]) -> str:
    crew = Crew(share=None, logs=Path())  # type: ignore[arg-type]
    crew.results = Results(5, 8, None, crew.on_result)
    for kind, rest in messages:
        crew.on_message(None, kind, rest)  # type: ignore[arg-type]
    assert isinstance(crew.halted, NanLossError)
    assert f"{crew.halted.seq_id} is" in str(crew.halted) and f"batch {crew.halted.micro_batch}" in str(crew.halted)
    return str(crew.halted)


@pytest.mark.parametrize("first", range(len(NOT_FINITE)))
def test_the_first_loss_that_is_not_finite_is_told_whichever_is_heard_first(first: int) -> None:
    for order in permutations(NOT_FINITE[first:]):
        assert told_after([("nan", said) for said, _ in order]) == f"the loss of subnet {NOT_FINITE[first][1]}"


def test_losses_that_other_workers_have_told_were_waited_for() -> None:
    finite = ("loss", [5, {}, {0: 1.0, 4: 2.0}])
    assert told_after([finite, ("nan", NOT_FINITE[1][0])]) == "the loss of subnet 5 is nan in micro-batch 1"
    assert told_after([finite, ("nan", NOT_FINITE[2][0])]).endswith(
        "maybe not the first: 1 before it was not waited for"
    )
