"""Files that are whole, or refused."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from sennit.errors import CheckpointError, RunError
from sennit.runtime.written import truncate, write_json


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


def test_a_log_shorter_than_at_the_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "access.jsonl").write_text("short")
    with pytest.raises(CheckpointError, match=r"access.jsonl has 5 bytes, but had 6 when"):
        truncate(tmp_path / "access.jsonl", 6)
    with pytest.raises(CheckpointError, match=r"has 0 bytes, but had 1"):
        truncate(tmp_path / "gone.jsonl", 1)
