"""Run folders: their names and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from sennit.errors import UserError
from sennit.runtime.runfolder import RunFolder


def test_a_new_folder_and_its_files(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "deep" / "run", resume=False) as run:
        assert not run.resumed and run.path.is_dir()
        run.write_json("run.json", {"recipe": {"lr": 0.1}})
        assert run.read_json("run.json") == {"recipe": {"lr": 0.1}}
        names = [p.name for p in (run.losses, run.access, run.trace, run.checkpoints)]
        assert names == ["losses.jsonl", "access.jsonl", "trace.json", "checkpoints"]


def test_default_names_count_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for n in (1, 2):
        with RunFolder.create(None, resume=False, name="digits") as run:
            assert run.path == Path("runs") / f"digits-{n}"
            run.write_json("run.json", {})
    Path("runs/digits-10").mkdir()
    Path("runs/digits-old").mkdir()
    with RunFolder.create(None, resume=False, name="digits") as run:
        assert run.path.name == "digits-11"
        run.write_json("run.json", {})
    with RunFolder.create(None, resume=False, name="dig") as run:
        assert run.path.name == "dig-1"


def test_resume_without_a_name_takes_the_last_and_starts_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with RunFolder.create(None, resume=True, name="digits") as run:
        assert run.path.name == "digits-1" and not run.resumed
        run.write_json("run.json", {})
    with RunFolder.create(None, resume=True, name="digits") as run:
        assert run.path.name == "digits-1" and run.resumed


def test_an_existing_folder_needs_resume(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", resume=False) as run:
        run.write_json("run.json", {})
    with pytest.raises(UserError, match=r"--out \S+run exists already; add --resume"):
        RunFolder.create(tmp_path / "run", resume=False)
    with RunFolder.create(tmp_path / "run", resume=True) as run:
        assert run.resumed


def test_resume_with_nothing_there_starts(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "new", resume=True) as run:
        assert not run.resumed
    with RunFolder.create(tmp_path / "new", resume=True) as run:  # killed before run.json was there
        assert not run.resumed


def test_open_reads_only_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is no folder; give the --out"):
        RunFolder.open(tmp_path / "none")
    with pytest.raises(UserError, match=r"has no run.json"):
        RunFolder.open(tmp_path)
    with RunFolder.create(tmp_path / "run", resume=False) as run:
        run.write_json("run.json", {"a": 1})
        assert RunFolder.open(tmp_path / "run").read_json("run.json") == {"a": 1}
        with pytest.raises(UserError, match=r"in use"):
            RunFolder.open(tmp_path / "run", lock=True)
        with pytest.raises(UserError, match=r"cannot read .*result.json: No such file"):
            run.read_json("result.json")
        (run.path / "result.json").write_text("{")
        with pytest.raises(UserError, match=r"result.json is not valid JSON"):
            run.read_json("result.json")
        (run.path / "result.json").write_text("[]")
        with pytest.raises(UserError, match=r"must hold a JSON object"):
            run.read_json("result.json")
