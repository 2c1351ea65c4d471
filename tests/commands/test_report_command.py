from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from sennit.runtime.runfolder import RunFolder


def test_report_of_a_finished_run(call: Callable, run: Path) -> None:
    said = call("report", run, "--json").json
    result = json.loads((run / "result.json").read_text())
    assert said["state"] == "finished" and said["steps"] == said["of"] == 40
    assert said["weights_sha256"] == result["weights_sha256"] and said["bubble"] == result["bubble"]
    assert said["checkpoints"] == ["00000015", "00000030", "00000040"]
    assert [e["seq_id"] for e in said["evaluations"]] == [19, 39] and said["evaluations"][0]["metric"] == "accuracy"
    shown = call("report", run)
    assert result["losses_sha256"] in shown.out and "after 40 subnets: accuracy mean" in shown.out


def test_report_of_a_run_that_is_not_finished(call: Callable, run: Path) -> None:
    (run / "result.json").unlink()
    assert call("report", run, "--json").json["state"] == "ended early; go on with --resume"
    with RunFolder.open(run, lock=True):
        assert call("report", run, "--json").json["state"].startswith("running (process ")
    assert call("report", run).exit == 0


def test_space_and_data(call: Callable, workplace: Path) -> None:
    said = call("space", "r.toml", "--json").json
    assert said["networks"] == 81 and said["parameters"] == [108, 1228]
    assert said["choices"]["blocks.0"] == ["mlp", "norm", "id"]
    assert "blocks.3" in call("space", "r.toml").out
    assert "licence" in call("data", "list", "--json").json["ende"]
    done = call("data", "fetch", "digits")
    assert done.exit == 2 and "scikit-learn" in done.err


def test_doctor(call: Callable) -> None:
    done = call("doctor", "--json")
    assert done.exit == 0 and done.json["ok"]
    by_name = {check["name"]: check for check in done.json["checks"]}
    assert "equal hashes" in by_name["self-test"]["found"]
    assert {"python", "torch", "processors", "memory", "GPUs"} <= set(by_name)
