"""Messages may come late: the same bits, and nobody waits for ever. If one never comes, the run ends and says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sennit.errors import RunError
from sennit.runtime import launcher, stall
from sennit.runtime.channel import Channel
from sennit.runtime.share import Parts
from tests.runtime.gates import Halting, Late, Lossy
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_engines import cuts_file, violations
from tests.runtime.test_sync_rules import CHAIN

CASES: dict[str, dict[str, Any]] = {
    "frozen-global": {"shared": "frozen", "micro_batches": 1, "clip": "global:1.0"},
    "strict-global": {"micro_batches": 2, "clip": "global:1.0"},
    "delayed-global": {"shared": "delayed:2", "clip": "global:1.0"},
    "frozen-layer": {"shared": "frozen", "micro_batches": 3, "clip": "layer:1.0"},
    "learning": {"sampler": "sink.py:cycle", "micro_batches": 1, "clip": "global:1.0"},
}


def late(seed: int) -> Parts:
    return Parts(channel=lambda inner: Late(inner, seed, 0.004))


def ends_file(folder: Path) -> str:
    """Three workers, the outer ones with always-shared layers alone: under `frozen` they have nothing to step."""
    path = folder / "ends.json"
    path.write_text(json.dumps({"format": "sennit.cuts/1", "cuts": [[2, 23]]}))
    return str(path)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stalls are noticed after two seconds."""
    monkeypatch.setattr(stall, "STALL_S", 2.0)
    monkeypatch.setattr(launcher, "STALL_S", 2.0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("case", CASES)
def test_late_messages_change_nothing(case: str, tmp_path: Path) -> None:
    made = recipe(**CASES[case], steps=24)
    plain = run(made, tmp_path / "plain", engine="plain")
    plans = {"2": (2, None), "4": (4, cuts_file(made, 4, tmp_path)), "ends": (3, ends_file(tmp_path))}
    for name, (workers, plan) in plans.items():
        result = run(made, tmp_path / name, workers=workers, plan=plan, in_flight=4, parts=late(workers))
        assert hashes(result) == hashes(plain), name
        assert not violations(tmp_path / name)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("schedule", ["gpipe", "interleaved", "zbv", "chimera"])
def test_late_messages_change_nothing_under_fixed_orders(schedule: str, tmp_path: Path) -> None:
    made = recipe(**{**CHAIN, "sync": "bulk:4", "micro_batches": 2, "steps": 8})
    plain = run(made, tmp_path / "plain", engine="plain")
    chunks = 2 if schedule == "interleaved" else 1
    result = run(made, tmp_path / "run", workers=3, schedule=schedule, chunks=chunks, parts=late(3))
    assert hashes(result) == hashes(plain)
    assert not violations(tmp_path / "run")


@pytest.mark.usefixtures("impatient")
def test_a_worker_that_stands_still_while_it_publishes_is_overtaken_and_harms_nobody(tmp_path: Path) -> None:
    made = recipe(steps=12)
    plain = run(made, tmp_path / "plain", engine="plain")
    result = run(made, tmp_path / "run", workers=2, in_flight=4, parts=Parts(store=Halting))
    assert hashes(result) == hashes(plain)
    assert not violations(tmp_path / "run")


@pytest.mark.usefixtures("impatient")
def test_a_message_that_never_comes_ends_the_run_and_is_named(tmp_path: Path) -> None:
    def lossy(inner: Channel) -> Channel:
        return Lossy(inner, 5)

    with pytest.raises(RunError) as caught:
        run(recipe(micro_batches=1), tmp_path / "run", workers=3, parts=Parts(channel=lossy))
    told = str(caught.value)
    assert "no worker has had anything to do for 2 s" in told
    assert "waits for subnet 5: the gradient of value" in told
    assert "all workers were stopped" in told
