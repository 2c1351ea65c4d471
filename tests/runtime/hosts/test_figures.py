"""What a run of several hosts writes down of itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sennit.recipe import CheckpointRule
from sennit.runtime.fingerprint import fingerprint
from sennit.runtime.hosts import guest
from sennit.runtime.hosts.meeting import Meeting
from sennit.runtime.request import Request
from tests.runtime.hosts.several import run_on
from tests.runtime.runs import recipe
from tests.runtime.test_per_subnet import profile_of
from tests.runtime.test_sync_rules import CHAIN


def test_trace_and_result(tmp_path: Path) -> None:
    """Whatever host a version was made on, its readers know by which task; times are those of one clock."""
    made, plan = recipe(**CHAIN, checkpoint=CheckpointRule(every=6)), str(profile_of(CHAIN, tmp_path))
    result = run_on(2, made, tmp_path / "run", workers=2, plan=plan)
    lines = [json.loads(line) for line in (tmp_path / "run" / "trace.jsonl").read_text().splitlines()]
    spans = [line for line in lines if "kind" in line]
    forwards = [s for s in spans if s["kind"] == "F"]
    assert len({(s["seq_id"], s["micro_batch"], s["run"]) for s in forwards}) == len(forwards)
    assert {s["worker"] for s in forwards} == {0, 1} and {s["seq_id"] for s in forwards} == set(range(made.steps))
    versions = [s for s in spans if s["cause"] == "version"]
    assert versions and all("by" in s for s in versions)
    assert all(s["left"] <= s["ready"] <= s["start"] <= s["end"] for s in spans)
    counted = {(c["counter"], c["worker"]): c["value"] for c in lines if "counter" in c}  # the last of each
    hosts = result["hosts"]
    assert hosts["hosts"] == json.loads((tmp_path / "run" / "run.json").read_text())["hosts"] == 2
    assert sum(counted["bytes pushed to other hosts", w] for w in (0, 1)) == hosts["pushed_bytes"] > 0
    assert sum(counted["bytes of values and gradients to other hosts", w] for w in (0, 1)) == hosts["tensor_bytes"] > 0
    assert hosts["pushes"] > 0 and hosts["gathered_bytes"] > 0 and hosts["stall_s"] >= 0


def test_hosts_of_two_kinds_are_not_comparable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(request: Request, meeting: Meeting) -> None:
        monkeypatch.setattr(guest, "fingerprint", lambda device: {**fingerprint(device), "cpu": "another"})
        guest.follow(request, meeting)  # in a process of its own

    made = recipe(**{**CHAIN, "steps": 4})
    assert run_on(2, made, tmp_path / "same", workers=2)["comparable"]
    assert not run_on(2, made, tmp_path / "other", guest=other, workers=2)["comparable"]
