"""Files in the data folder: whole or not there, one builder at a time."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from sennit.data.store import data_root, locked, read_file, write_atomically
from sennit.errors import UserError


def test_the_folder_is_given_or_the_variable_or_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SENNIT_DATA", str(tmp_path / "data"))
    assert data_root() == tmp_path / "data"
    assert data_root(tmp_path) == tmp_path
    monkeypatch.delenv("SENNIT_DATA")
    assert data_root() == Path.home() / ".cache" / "sennit"


def test_a_write_that_fails_leaves_what_was_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    write_atomically(path, b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"No space left on device; set .SENNIT_DATA to a folder with room"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in path.parent.iterdir()] == ["file"]  # nothing half-written is left


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_atomically(tmp_path / "file" / "inside", b"")
    with pytest.raises(UserError, match="cannot be written"), locked(tmp_path / "file" / "inside"):
        pass


def test_a_missing_file_is_named_with_its_purpose(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the table cannot be read from '.*gone': No such file"):
        read_file(tmp_path / "gone", "the table")


def _build(path: Path) -> bool:
    with locked(path):
        if path.exists():
            return False
        write_atomically(path, b"built")
        return True


def test_of_several_processes_one_builds(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert sorted(pool.map(_build, [tmp_path / "file"] * 4, chunksize=1)) == [False, False, False, True]
