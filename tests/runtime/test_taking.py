"""Who may write where."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sennit.errors import UserError
from sennit.runtime.runfolder import RunFolder
from sennit.runtime.taking import BEGUN, refuse_existing


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
