"""Run folders: who may write where, and files that are whole."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sennit.errors import CheckpointError, RunError, UserError
from sennit.runtime.fingerprint import different, fingerprint
from sennit.runtime.runfolder import BEGUN, LossLog, RunFolder, refuse_existing, truncate, write_json


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


def test_a_folder_of_other_things_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    with pytest.raises(UserError, match=r"has no run.json, so it is no run folder; it holds cat.jpg"):
        RunFolder.create(tmp_path / "photos", resume=True)
    assert [p.name for p in (tmp_path / "photos").iterdir()] == ["cat.jpg"]
    (tmp_path / "file").touch()
    for resume in (False, True):
        with pytest.raises(UserError, match=r"a file stands where the folder should be"):
            RunFolder.create(tmp_path / "file", resume=resume)
    with pytest.raises(UserError, match=r"a file stands where the folder should be"):
        RunFolder.create(tmp_path / "file" / "run", resume=False)
    with pytest.raises(UserError, match=r"cannot be made: File name too long"):
        RunFolder.create(tmp_path / ("x" * 300), resume=False)


def test_what_a_run_leaves_that_was_killed_in_its_first_moments_is_taken_again(tmp_path: Path) -> None:
    for name in (".run.json.writing", "lock", *BEGUN):
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=r"exists already; add --resume"):
        RunFolder.create(tmp_path, resume=False)
    with RunFolder.create(tmp_path, resume=True) as run:
        assert not run.resumed
    (tmp_path / "losses.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match=r"it holds losses.jsonl"):
        RunFolder.create(tmp_path, resume=True)


def test_an_empty_folder_is_taken_and_one_with_other_things_is_not(tmp_path: Path) -> None:
    refuse_existing(tmp_path)
    (tmp_path / "notes.txt").touch()
    for refuse in (refuse_existing, lambda path: RunFolder.create(path, resume=False)):
        with pytest.raises(UserError, match=r"is no run folder: it holds notes.txt. Name another folder"):
            refuse(tmp_path)
        with pytest.raises(UserError, match=r"a file stands where the folder should be"):
            refuse(tmp_path / "notes.txt")
    (tmp_path / "notes.txt").unlink()
    with RunFolder.create(tmp_path, resume=False) as run:
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


HOLDER = """
import sys
from sennit.runtime.runfolder import RunFolder
run = RunFolder.create(sys.argv[1], resume=True)
run.write_json("run.json", {})
print("held", flush=True)
sys.stdin.read()
"""


def test_a_folder_in_use_names_the_process_and_is_free_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "run"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match=rf"run is in use by process {holder.pid};"):
            RunFolder.create(path, resume=True)
        holder.send_signal(signal.SIGKILL)
        holder.wait(30)
    with RunFolder.create(path, resume=True) as run:
        assert run.resumed and (path / "lock").read_text() == f"{os.getpid()}\n"


def test_json_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(tmp_path / "result.json", {"steps": 1})

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=r"the disk is full: \S+result.json could not be written"):
        write_json(tmp_path / "result.json", {"steps": 2})
    monkeypatch.undo()
    assert json.loads((tmp_path / "result.json").read_text()) == {"steps": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_losses_keep_their_bits_and_are_cut_back(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal(50).astype(np.float32)
    log = LossLog(tmp_path / "losses.jsonl")
    for seq_id in range(30):
        log.write(seq_id, {"blocks.0": "mlp", "skip": [0, 2]}, float(values[seq_id]))
    at = log.sync()
    for seq_id in range(30, 50):
        log.write(seq_id, {}, float(values[seq_id]), mean=0.5)
    log.close()

    def read() -> list[dict[str, Any]]:
        return [json.loads(line) for line in (tmp_path / "losses.jsonl").read_text().splitlines()]

    assert np.array([line["loss"] for line in read()], dtype=np.float32).tobytes() == values.tobytes()
    assert list(read()[0]) == ["seq_id", "arch", "loss"] and read()[40]["mean"] == 0.5
    with RunFolder.create(tmp_path / "run", resume=False) as run:
        (tmp_path / "losses.jsonl").rename(run.losses)
        run.rewind({"losses.jsonl": at, "access.jsonl": 0})
        assert run.losses.stat().st_size == at and not run.access.exists()
        log = LossLog(run.losses)
        log.write(30, {}, 0.0)
        log.close()
        lines = run.losses.read_text().splitlines()
        assert len(lines) == 31 and json.loads(lines[-1])["seq_id"] == 30


def test_a_log_shorter_than_at_the_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "access.jsonl").write_text("short")
    with pytest.raises(CheckpointError, match=r"access.jsonl has 5 bytes, but had 6 when"):
        truncate(tmp_path / "access.jsonl", 6)
    with pytest.raises(CheckpointError, match=r"has 0 bytes, but had 1"):
        truncate(tmp_path / "gone.jsonl", 1)


def test_a_full_disk_while_logging_is_a_run_error() -> None:
    log = LossLog(Path("/dev/full"))
    with pytest.raises(RunError, match=r"the disk is full: /dev/full could not be written"):
        log.write(0, {}, 1.0)
    log.close()


def test_fingerprint_is_json_and_says_what_differs() -> None:
    found = fingerprint()
    assert json.loads(json.dumps(found)) == found
    for key in ("system", "cpu", "cpu_flags", "cpu_kernels", "threads", "python", "torch", "numpy"):
        assert found[key] or key == "cpu_flags"
    assert found["threads"] == 1 and different(found, fingerprint()) == []
    assert different(found, {**found, "threads": 2}) == ["threads: 1 against 2"]
    assert different(found, {**found, "gpus": ["H100"]}) == ["gpus: None against ['H100']"]
