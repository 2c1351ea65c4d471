"""Runs of several hosts that stop, and go on elsewhere."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sennit.errors import Interrupted, NanLossError, SpaceError
from sennit.runtime.request import Progress
from sennit.runtime.train import train
from tests.runtime.hosts.several import codes, guests, request_of, run_on
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_chimera import TIED
from tests.runtime.test_engines import violations
from tests.runtime.test_per_subnet import profile_of
from tests.runtime.test_sync_rules import CHAIN

CASES: dict[str, dict[str, Any]] = {"csp": {}, "bulks": {"sync": "bulk:4"}, "delayed": {"shared": "delayed:3"}}


@pytest.mark.parametrize("case", CASES)
def test_on_other_hosts(case: str, tmp_path: Path) -> None:
    changes, out = CASES[case], tmp_path / "run"
    made, plan = recipe(**changes), str(profile_of(changes, tmp_path))
    plain = run(made, tmp_path / "plain", engine="plain")
    run_on(2, made, out, steps=4, workers=3, plan=plan)
    run_on(3, made, out, steps=8, resume=True, workers=3, plan=plan)
    run(made, out, steps=12, resume=True, workers=2)
    assert hashes(run_on(2, made, out, resume=True, workers=4, plan=plan)) == hashes(plain)
    assert not violations(out)
    seen = [json.loads(line)["seq_id"] for line in (out / "losses.jsonl").read_text().splitlines()]
    assert seen == list(range(made.steps))


@pytest.mark.parametrize("cuts", [[0, 3, 5], [1, 1, 7]])
def test_waiting_gradients_are_pushed_by_whoever_steps_them(cuts: list[int], tmp_path: Path) -> None:
    """Whichever workers use the layers that all subnets share: the first of all of them may not be among these."""
    made, plan = recipe(**{**TIED, "shared": "delayed:3"}), tmp_path / "cuts.json"
    plan.write_text(json.dumps({"format": "sennit.cuts/1", "cuts": [cuts]}))
    plain = run(made, tmp_path / "plain", engine="plain")
    run_on(2, made, tmp_path / "run", steps=4, workers=4, plan=str(plan))
    assert hashes(run_on(2, made, tmp_path / "run", resume=True, workers=4, plan=str(plan))) == hashes(plain)
    assert not violations(tmp_path / "run")


@pytest.mark.parametrize("asked", ["host 0", "host 1"])
def test_asked_to_stop(asked: str, tmp_path: Path) -> None:
    made, out = recipe(steps=40), tmp_path / "run"
    plain = run(made, tmp_path / "plain", engine="plain")
    request = request_of(made, out, workers=2)
    with guests(request, 2, tmp_path / "run.guests") as (meeting, pids):

        def tell(progress: Progress) -> None:
            if progress.event == "subnet" and progress.done == 5:
                os.kill(os.getpid() if asked == "host 0" else pids[0], signal.SIGTERM)

        meeting.brief(request)
        with pytest.raises(Interrupted, match="stopped after"):
            train(replace(request, meeting=meeting), tell)
    assert codes(out) == "[0]"
    assert hashes(run_on(2, made, out, resume=True, workers=2)) == hashes(plain)


def test_a_loss_that_is_not_finite(tmp_path: Path) -> None:
    """Each subnet waits for the one before, so the cut can be formed, whatever host has moved the buffers last."""
    changes = {**TIED, "space": "tied.py:OneNorm", "micro_batches": 2, "data": "tied.py:Spoilt", "clip": "global:1.0"}
    made = recipe(**changes, data_args={"spoilt": 0})
    told: list[str] = []
    for hosts in (1, 2):
        with pytest.raises(NanLossError, match="5 is nan in micro-batch 0") as caught:
            if hosts == 1:
                run(made, tmp_path / "1", workers=2)
            else:
                run_on(hosts, made, tmp_path / "2", workers=2)
        told.append(str(caught.value).replace(f"{tmp_path}/{hosts}", "RUN"))
    assert told[0] == told[1] and "the state before subnet 5 is kept" in told[0]
    kept = [json.loads((tmp_path / f"{n}/checkpoints/00000005/state.json").read_text())["state"] for n in (1, 2)]
    assert kept[0]["files"] == kept[1]["files"] and kept[0]["versions"] == kept[1]["versions"]


def test_a_subnet_that_is_refused(tmp_path: Path) -> None:
    """What a layer writes for some combination of choices only ends all hosts before the same subnet."""
    made = recipe(**{**CHAIN, "space": "combined.py:Combined", "steps": 16, "micro_batches": 2})
    told: list[str] = []
    for hosts in (1, 2):
        with pytest.raises(SpaceError, match=r"writes 'gauge.seen' in forward for some combinations") as caught:
            if hosts == 1:
                run(made, tmp_path / "1", workers=2)
            else:
                run_on(hosts, made, tmp_path / "2", workers=2)
        told.append(str(caught.value).replace(f"{tmp_path}/{hosts}", "RUN"))
    assert told[0] == told[1] and "the state before it is kept in RUN/checkpoints/00000002" in told[0]
    kept = [json.loads((tmp_path / f"{n}/checkpoints/00000002/state.json").read_text())["state"] for n in (1, 2)]
    assert kept[0]["files"] == kept[1]["files"] and kept[0]["versions"] == kept[1]["versions"]


def test_nothing_is_left(tmp_path: Path) -> None:
    """A run that is finished is resumed: all hosts end well."""
    made, out = recipe(steps=4), tmp_path / "run"
    first = run_on(2, made, out, workers=2)
    assert hashes(run_on(2, made, out, resume=True, workers=2)) == hashes(first)
    assert codes(out) == "[0]"
