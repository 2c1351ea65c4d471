from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sennit.commands.recorded import HASHES
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
    assert call("report", run, "--json").json["state"] == f"ended early; go on from subnet 40 with --out {run} --resume"
    told = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**told, "steps": 70}))
    shutil.rmtree(run / "checkpoints" / "00000040")
    told_so = f"ended early; go on from subnet 30 with --out {run} --resume --steps 70"
    assert call("report", run, "--json").json["state"] == told_so
    (run / "run.json").write_text(json.dumps(told))
    with RunFolder.open(run, lock=True):
        assert call("report", run, "--json").json["state"].startswith("running (process ")
    assert call("report", run).exit == 0


def data_of(page: Path) -> dict[str, Any]:
    """The JSON in a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)
    assert found
    return json.loads(found[1])


def test_the_page_of_a_run_holds_what_its_folder_does(call: Callable, run: Path) -> None:
    shown = call("report", run)
    assert str(run / "report.html") in shown.out and "% of 2 workers' time" in shown.out
    data = data_of(run / "report.html")
    tasks = sum('"kind"' in line for line in (run / "trace.jsonl").read_text().splitlines())
    assert data["spans"]["n"] == tasks and data["spans"]["workers"] == 2
    groups = {json.loads(line)["group"] for line in (run / "access.jsonl").read_text().splitlines()}
    assert set(data["access"]["groups"]) == {group for group in groups if not group.endswith("#buffers")}
    assert [e["seq_id"] for e in data["loss"]["evaluations"]] == [19, 39]
    result = json.loads((run / "result.json").read_text())
    hashes = next(fact["rows"] for fact in data["facts"] if fact["title"] == "Hashes")
    assert [value for _, value in hashes] == [result[key] for key in HASHES]


def placement_of(page: Path) -> dict[str, str]:
    return dict(next(fact["rows"] for fact in data_of(page)["facts"] if fact["title"] == "Placement"))


def test_the_placement_on_the_page_is_what_was_chosen(call: Callable, run: Path) -> None:
    """Was an empty schedule and 0 in flight."""
    assert call("report", run).exit == 0
    shown = placement_of(run / "report.html")
    assert (shown["schedule"], shown["in_flight"]) == ("csp (default)", "4 (default)")
    assert all(shown.values()) and shown["plan"] == "default" and shown["workers"] == "2"
    (run / "trace.jsonl").unlink()
    assert call("report", run).exit == 0
    shown = placement_of(run / "report.html")
    assert (shown["schedule"], shown["in_flight"]) == ("default", "default")


def test_json_is_for_machines_and_writes_a_page_only_where_told(call: Callable, run: Path) -> None:
    before = call("report", run, "--json").json
    assert not (run / "report.html").exists()
    assert call("report", run, "--json", "--html", "p.html").json == before and data_of(Path("p.html"))["spans"]["n"]


def test_a_page_that_cannot_be_written(call: Callable, run: Path) -> None:
    done = call("report", run, "--html", "no/p.html")
    assert done.exit == 2 and "no/p.html cannot be written" in done.err and "--html" in done.err
    (run / "report.html").mkdir()
    done = call("report", run)
    assert done.exit == 0 and "report.html cannot be written" in done.err and "40 of 40 subnets" in done.out


def test_report_of_a_simulated_trace(call: Callable, workplace: Path) -> None:
    words = "simulate --space cv.c3 --workers 4 -M 2 --subnets 6 --no-levers --json --trace t.jsonl"
    simulated = call(*words.split()).json
    said = call("report", "t.jsonl", "--json").json
    assert said["tasks"] == simulated["tasks"] and said["bubble"] == pytest.approx(simulated["bubble"])
    assert sum(said["idle"].values()) == pytest.approx(said["bubble"])
    shown = call("report", "t.jsonl")
    assert "t.jsonl.html" in shown.out and data_of(Path("t.jsonl.html"))["spans"]["n"] == simulated["tasks"]


def test_a_plain_run_has_a_page_without_a_timeline(call: Callable, workplace: Path) -> None:
    assert call("train", "r.toml", "--engine", "plain", "--steps", "3", "--out", "plain").exit == 0
    assert call("report", "plain").exit == 0
    data = data_of(Path("plain/report.html"))
    assert "spans" not in data and data["loss"] and data["access"]["groups"]
    assert placement_of(Path("plain/report.html"))["schedule"] == "none: the plain loop"


def changed(path: Path, where: str, value: Any) -> None:
    """Put a value at `a.b` of a JSON file; None takes it away."""
    held = part = json.loads(path.read_text())
    *tables, key = where.split(".")
    for table in tables:
        part = part[table]
    if value is None:
        del part[key]
    else:
        part[key] = value
    path.write_text(json.dumps(held))


@pytest.mark.parametrize(
    ("name", "where", "value", "said"),
    [
        ("run", "fingerprint.python", None, "the table lacks `python`"),
        ("run", "placement.workers", "two", "placement.workers = 'two': Expected a whole number, got a string"),
        ("run", "placement.workers", 0, "placement.workers = 0: Expected a whole number >= 1"),
        ("run", "comparable", "perhaps", "comparable = 'perhaps': Expected true or false, got a string"),
        ("result", "subnets_per_s", "x", "subnets_per_s = 'x': Expected a number or nothing, got a string; remove it"),
        ("result", "prospect", {"subnets": 1}, "the table lacks `bubble`; remove it"),
        ("result", "prospect", [1], "Expected a table or nothing, got a list; remove it"),
        ("result", "steps", 41, "losses.jsonl has 40 subnets, result.json tells of 41; put back"),
    ],
)
def test_a_damaged_file_of_a_run_is_named(
    call: Callable, run: Path, name: str, where: str, value: Any, said: str
) -> None:
    changed(run / f"{name}.json", where, value)
    done = call("report", run)
    assert done.exit == 2 and said in done.err
    assert where == "steps" or f"{run / name}.json is damaged" in done.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"loss": "x", "seq_id": 40, "arch": {}}', "loss = 'x': Expected a number or nothing, got a string"),
        ('{"loss": 1e999, "seq_id": 40, "arch": {}}', "loss = inf: Expected a number <="),
        ('{"loss": NaN, "seq_id": 40, "arch": {}}', "NaN is no number of JSON"),
        ('{"loss": 1.0}', "the table lacks `seq_id`"),
        ('{"loss": 1.0, "seq_id": 39, "arch": {}}', "is of subnet 39, expected is 40"),
        ('{"evaluation": {"mean": 1.0}, "seq_id": 39}', "the table lacks `metric`"),
        ("[1]", "neither a loss nor an evaluation: [1]"),
        ("zzz", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a_damaged_line_of_the_losses_is_named(call: Callable, run: Path, line: str, said: str) -> None:
    with (run / "losses.jsonl").open("a") as file:
        file.write(line + "\n")
    done = call("report", run)
    assert done.exit == 2 and f"{run / 'losses.jsonl'}, line 43" in done.err and said in done.err


def test_report_of_a_run_that_ended_before_its_first_checkpoint(call: Callable, run: Path) -> None:
    (run / "result.json").unlink()
    shutil.rmtree(run / "checkpoints")
    assert "--resume starts from the beginning" in call("report", run, "--json").json["state"]


def test_a_run_without_its_losses(call: Callable, run: Path) -> None:
    (run / "losses.jsonl").unlink()
    done = call("report", run)
    assert done.exit == 2 and "losses.jsonl has 0 subnets, result.json tells of 40" in done.err
    (run / "result.json").unlink()
    assert "--resume: 0 of 40 subnets" in call("report", run).out


def test_a_damaged_trace_is_named_and_the_rest_is_shown_without_it(call: Callable, run: Path) -> None:
    log = run / "trace.jsonl"
    last = [line for line in log.read_bytes().splitlines(keepends=True) if b'"kind"' in line][-1]
    with log.open("ab") as file:
        file.write(last)
    for target in (run, log):
        done = call("report", target)
        assert done.exit == 2 and f"{log} is damaged: " in done.err and "move it away" in done.err
    log.unlink()
    assert "40 of 40 subnets" in call("report", run).out


def test_a_damaged_log_of_a_search_is_named(call: Callable, run: Path) -> None:
    folder = run / "search" / "1"
    folder.mkdir(parents=True)
    (folder / "search.jsonl").write_text('{"search": {"objective": {"name": "loss", "mode": "min"}}}\n{"number": 0}\n')
    done = call("report", run)
    assert done.exit == 2 and f"{folder / 'search.jsonl'}, line 2 is damaged: the table lacks `arch`" in done.err


def test_what_is_no_trace_is_refused(call: Callable, workplace: Path) -> None:
    done = call("report", "r.toml")
    assert done.exit == 2 and "no line of facts, so it is no trace" in done.err


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


@pytest.mark.parametrize(
    ("levers", "row"),
    [
        ({"--split": 0.3, "--chunks 2": 0.499, "--release layer": 0.6}, "from 0.50: --split 0.30"),
        ({"--split": 0.5}, None),
    ],
)
def test_changes_that_gain_nothing_are_not_shown(
    call: Callable, run: Path, levers: dict[str, float], row: str | None
) -> None:
    """All were, with bubbles as large as without."""
    result = json.loads((run / "result.json").read_text())
    found = {"subnets": 40, "bubble": 0.5, "bubble_at_bound": 0.25, "binds": "dependencies", "levers": levers}
    (run / "result.json").write_text(json.dumps({**result, "prospect": found}))
    shown = call("report", run).out
    rows = {label: text for fact in data_of(run / "report.html")["facts"] for label, text in fact["rows"]}
    assert rows.get("one change") == row and "bubble 0.50; no order of these tasks goes below 0.25" in rows["simulated"]
    assert ("one change" in shown) is (row is not None) and "--chunks 2" not in shown
