from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest


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
    assert [cell.strip() for cell in rows[0][1:5:2]] == ["recorded", "-"]  # weights after 6 are not recorded
    assert rows[0][4].strip() == rows[1][4].strip() != "-"


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
