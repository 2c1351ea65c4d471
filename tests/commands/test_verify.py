from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.runs import recipe

from sennit.commands import verify
from sennit.commands.recorded import HASHES
from sennit.commands.verify import _request  # pyright: ignore[reportPrivateUsage]
from sennit.commands.verify_rows import Row, stopped
from sennit.errors import Interrupted
from sennit.recipe import Placement


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


def test_all_placements_agree(call: Callable, run: Path, tmp_path: Path) -> None:
    done = call("verify", run, "--workers", "1,3", "--json")
    assert done.exit == 0, done.err
    said = done.json
    assert said["equal"] and said["comparable"] and said["steps"] == 40
    assert [row["name"] for row in said["runs"]] == ["recorded", "plain", "1 worker", "3 workers"]
    assert len({row["weights_sha256"] for row in said["runs"]}) == 1
    assert all(row["accesses"] > 500 and row["violations"] == 0 for row in said["runs"])
    assert not os.listdir(tmp_path / "temporary")


def test_table_and_first_subnets_only(call: Callable, run: Path) -> None:
    done = call("verify", run, "--workers", "2", "--steps", "6")
    assert done.exit == 0 and "all equal" in done.out
    rows = [line.split("│") for line in done.out.splitlines() if line.startswith("│")]
    assert [cell.strip() for cell in rows[0][1:5]] == ["recorded", "csp", "-", "-"]  # weights after 6 are not recorded
    assert rows[0][5].strip() == rows[1][5].strip() != "-"


@pytest.mark.parametrize("where", ["result", "losses", "log"])
def test_any_difference_is_found(call: Callable, run: Path, where: str) -> None:
    if where == "result":
        held = json.loads((run / "result.json").read_text())
        (run / "result.json").write_text(json.dumps({**held, "optimizer_sha256": "0" * 64}))
    elif where == "losses":
        held = json.loads((run / "result.json").read_text())
        (run / "result.json").write_text(json.dumps({**held, "losses_sha256": "1" * 64}))
    else:
        lines = (run / "access.jsonl").read_text().splitlines(keepends=True)
        late = next(i for i, line in enumerate(lines) if '"seq":9' in line and '"rw":"R"' in line)
        stale = json.loads(lines[late])
        stale["version"] = 2
        lines[late] = json.dumps(stale) + "\n"
        (run / "access.jsonl").write_text("".join(lines))
    done = call("verify", run, "--workers", "1")
    assert done.exit == 1 and "NOT equal" in done.out
    words = {"result": "!= 000000000000", "losses": "!= 111111111111", "log": "recorded: subnet 9"}
    assert words[where] in done.out


def test_what_cannot_be_compared_is_said(call: Callable, run: Path) -> None:
    held = json.loads((run / "run.json").read_text())
    held["fingerprint"]["torch"] = "1.0"
    (run / "run.json").write_text(json.dumps(held))
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**result, "weights_sha256": "0" * 64}))
    done = call("verify", run, "--workers", "1", "--json")
    assert done.exit == 0 and done.json["equal"] and not done.json["comparable"]
    assert "torch: '1.0'" in done.json["reasons"][0]


def test_nondeterministic_recipe(call: Callable, workplace: Path) -> None:
    text = Path("r.toml").read_text()
    Path("r.toml").write_text("allow_nondeterministic = true\n" + text)
    assert call("train", "r.toml", "--steps", "4", "--out", "o").exit == 0
    done = call("verify", "o", "--workers", "2")
    assert "not comparable" in done.out and "allow_nondeterministic" in done.out


@pytest.mark.parametrize("sync", ["csp", "bulk-per-worker"])
def test_any_number_of_workers_may_share_the_gpus_of_this_machine(sync: str) -> None:
    """A run that was recorded with a GPU for each worker is verified where there is one."""
    made, recorded = recipe(sync=sync), Placement(workers=4, device="cuda", transport="direct", schedule="csp")
    for workers in (1, 2, 4):
        placement = _request(made, workers, recorded, 4, Path("nowhere")).placement
        assert (placement.workers, placement.device, placement.transport) == (workers, "cuda", "auto")


def trained(call: Callable, sync: str, *words: str, more: str = "") -> None:
    Path("r.toml").write_text(f'sync = "{sync}"\n{more}' + Path("r.toml").read_text())
    done = call("train", "r.toml", "--out", "o", "--workers", "2", *words)
    assert done.exit == 0, done.err


def schedules(said: dict[str, Any]) -> list[str | None]:
    return [row["schedule"] for row in said["runs"]]


def test_the_schedule_of_each_row_is_shown(call: Callable, workplace: Path) -> None:
    trained(call, "bulk:4", "--schedule", "gpipe", "--steps", "8")
    done = call("verify", "o", "--workers", "2", "--json")
    assert done.exit == 0 and schedules(done.json) == ["gpipe", None, "csp"]
    assert done.json["as_recorded"]["equal"] and not done.json["per_placement"]
    shown = call("verify", "o", "--workers", "2").out
    cells = [line.split("│")[2].strip() for line in shown.splitlines() if line.startswith("│")]
    assert cells == ["gpipe", "-", "csp"] and "as recorded" not in shown


@pytest.mark.parametrize(
    ("sync", "words", "schedule", "causal"),
    [
        ("asp:stash", (), "pipedream", False),
        ("asp:stash", ("--schedule", "gpipe"), "gpipe", True),  # one subnet after the other: nothing is overtaken
        ("asp:none", ("--schedule", "interleaved", "--chunks", "2"), "interleaved", True),
        ("bulk-per-worker", ("--schedule", "1f1b"), "1f1b", False),
    ],
)
def test_the_recorded_schedule_is_run_again_where_it_is_part_of_the_result(
    call: Callable, workplace: Path, sync: str, words: tuple[str, ...], schedule: str, causal: bool
) -> None:
    """Was another schedule, and no cuts where the run had evaluated."""
    trained(call, sync, *words)
    done = call("verify", "o", "--workers", "2", "--json")
    assert done.exit == (0 if causal else 1) and schedules(done.json) == [schedule, None, schedule]
    said = done.json["as_recorded"]
    assert said == {"name": "2 workers", "workers": 2, "equal": True, "different": []}
    recorded, plain, two = (row["weights_sha256"] for row in done.json["runs"])
    assert recorded == two and (two == plain) == causal


def test_the_rerun_as_recorded_is_told_apart(call: Callable, workplace: Path) -> None:
    trained(call, "asp:stash", "--steps", "16")
    shown = call("verify", "o", "--workers", "2,3")
    assert shown.exit == 1 and "2 workers, as recorded: equal" in shown.out
    assert "other trainings" in shown.out and "NOT equal: what differs from the plain loop" in shown.out
    assert "no rerun on 2 workers, as recorded; add 2 to --workers" in call("verify", "o", "--workers", "3").out
    held = json.loads(Path("o/result.json").read_text())
    Path("o/result.json").write_text(json.dumps({**held, "optimizer_sha256": "0" * 64}))
    assert "2 workers, as recorded: NOT equal: optimizer" in call("verify", "o", "--workers", "2").out


def test_by_default_numbers_of_workers_that_do_not_fit_are_left_out(call: Callable, workplace: Path) -> None:
    """40 is no multiple of 3; was an error."""
    trained(call, "bulk-per-worker")
    done = call("verify", "o")
    assert done.exit == 1 and "left out: 3 workers: sync = 'bulk-per-worker'" in done.err
    assert "2 workers, as recorded: equal" in done.out and "4 workers" in done.out and "3 workers" not in done.out
    assert call("verify", "o", "--workers", "2,3").exit == 2


def test_runs_of_whatever_is_ready_are_not_expected_to_be_equal(call: Callable, workplace: Path) -> None:
    trained(call, "asp:none", "--schedule", "tap", "--steps", "8", more="allow_nondeterministic = true\n")
    done = call("verify", "o", "--workers", "2")
    assert done.exit in (0, 1) and "no two runs can be expected to be equal" in done.out
    assert "as recorded" not in done.out and "tap" in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--workers", "7"), "only 6 blocks"),
        (("--workers", "1,x"), "'1,x'"),
        (("--steps", "41"), "between 1 and 40"),
    ],
)
def test_verify_refuses(call: Callable, run: Path, words: tuple[str, ...], said: str) -> None:
    done = call("verify", run, *words)
    assert done.exit == 2 and said in done.err


# -- interrupted


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), Interrupted("stopped after 3 of 6 subnets")])
def test_ctrl_c_says_what_was_found_and_how_to_go_on(
    call: Callable, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupt: BaseException
) -> None:
    """It said "interrupted"."""
    fresh = verify._fresh_row  # pyright: ignore[reportPrivateUsage]

    def one_is_interrupted(request: Any, counted: str, out: Any) -> Row:
        if counted == "3/4":
            raise interrupt
        return fresh(request, counted, out)

    monkeypatch.setattr(verify, "_fresh_row", one_is_interrupted)
    done = call("verify", run, "--workers", "2,1,3", "--steps", "6")
    assert done.exit == 130 and not done.out
    assert done.err.splitlines()[-1] == (
        "stopped in the run as 1 worker, of which nothing is kept: finished: plain, 2 workers; all equal so far. Go on "
        "with `sennit verify run --workers 1,3 --steps 6` (the plain loop is run again, to compare with)"
    )
    assert not os.listdir(tmp_path / "temporary")
    said = call("verify", run, "--workers", "2,1,3", "--steps", "6", "--json").json
    assert said["exit"] == 130 and "finished: plain, 2 workers" in said["error"]


def row(name: str, hashed: str = "a", violations: int = 0) -> Row:
    return Row(name, 1, None, dict.fromkeys(HASHES, hashed * 64), 1.0, n_violations=violations)


@pytest.mark.parametrize(
    ("rows", "comparable", "said"),
    [
        ([], True, "stopped while the log of the recorded run was read: no run was finished, so nothing has been"),
        ([row("recorded")], True, "in the run as plain, of which nothing is kept: no run was finished, so nothing"),
        ([row("recorded", violations=2)], True, "NOT equal so far: recorded has 2 violations in its access log. Go on"),
        (
            [row("recorded", "b"), row("plain")],
            True,
            "NOT equal so far: recorded has other weights, optimizer, losses",
        ),
        ([row("recorded", "b"), row("plain")], False, "finished: plain; all equal so far"),
        ([row("recorded"), row("plain"), row("1 worker", "b")], True, "NOT equal so far: 1 worker has other weights, "),
        (
            [row("recorded"), row("plain"), row("1 worker"), row("2 workers")],
            True,
            "stopped at the end: finished",
        ),
    ],
)
def test_what_is_said_at_any_moment(rows: list[Row], comparable: bool, said: str) -> None:
    names = ["plain", "1 worker", "2 workers"]
    assert said in stopped(Path("runs/a"), rows, names, steps=None, comparable=comparable)


def test_where_workers_are_part_of_the_result_a_difference_is_no_alarm() -> None:
    rows = [row("recorded"), row("plain"), row("1 worker", "b")]
    said = stopped(Path("a"), rows, ["plain", "1 worker", "2 workers"], steps=None, comparable=True, sync="asp:stash")
    assert "1 worker has other weights, optimizer, losses; under sync = 'asp:stash' other numbers of workers" in said
