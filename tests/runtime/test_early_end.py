"""A second Ctrl-C ends a run at once: the last line says what is on disk and how to go on."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from sennit.commands.failure import failure_of
from sennit.errors import NanLossError
from sennit.recipe import CheckpointRule, Placement
from sennit.runtime.request import Progress, Request
from sennit.runtime.train import train
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_sync_rules import CHAIN

ENGINES: dict[str, dict[str, Any]] = {"plain": {"engine": "plain"}, "pipeline": {"placement": Placement(workers=2)}}


def interrupted_at(done: int, out: Path, every: int, **engine: Any) -> str:
    """The last line of a run that is interrupted twice after so many subnets."""

    def tell(progress: Progress) -> None:
        if progress.event == "subnet" and progress.done == done:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)

    request = Request(recipe=recipe(checkpoint=CheckpointRule(every=every)), out=out, **engine)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as caught:
        train(request, tell)
    assert signal.getsignal(signal.SIGINT) is before
    failure = failure_of(caught.value)
    assert (failure.exit, failure.kind) == (130, "interrupted")
    return failure.message


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_on_disk_and_how_to_go_on(engine: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    said = interrupted_at(6, out, every=4, **ENGINES[engine])
    assert said == (
        f"ended at once, after 6 of 16 subnets; the last checkpoint is {out / 'checkpoints' / '00000004'}; go on with "
        f"--out {out} --resume, by the same recipe and code"
    )
    made = recipe(checkpoint=CheckpointRule(every=4))
    assert hashes(run(made, out, resume=True)) == hashes(run(made, tmp_path / "whole"))


@pytest.mark.parametrize("engine", ENGINES)
def test_before_the_first_checkpoint(engine: str, tmp_path: Path) -> None:
    said = interrupted_at(2, tmp_path / "run", every=8, **ENGINES[engine])
    assert said.startswith("ended at once, after 2 of 16 subnets; there is no checkpoint yet, so --out ")
    assert "--resume starts from the beginning" in said


@pytest.mark.parametrize("schedule", ["zbv", "gpipe", "1f1b", "zero-bubble"])
def test_a_list_goes_on_without_what_must_not_run(schedule: str, tmp_path: Path) -> None:
    """Its next task may be of a subnet whose loss is not finite, and those behind it of one that is finished first."""
    spoilt: dict[str, Any] = {"data": "tied.py:SpoiltBatch", "data_args": {"seq_id": 5}, "batch_size": 8}
    made = recipe(**{**CHAIN, **spoilt, "sync": "bulk:2", "steps": 8, "micro_batches": 2})
    with pytest.raises(NanLossError, match="the loss of subnet 5 is nan"):
        run(made, tmp_path / "run", workers=2, schedule=schedule)
