"""The access log: what is written is what is read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sennit.errors import RunError, UserError
from sennit.trace import access
from sennit.trace.access import Access, AccessLog, read_accesses


def test_round_trip_of_both_kinds_of_version(tmp_path: Path) -> None:
    log = AccessLog(tmp_path / "access.jsonl", 3)
    log.parameters('odd "name"', "grüppe", 7, 1, "F", "R", -1)
    log.buffers("bn", "bn#buffers", 7, 1, "F", "W", (7, 1))
    log.close()
    log.close()
    assert list(read_accesses(tmp_path / "access.jsonl")) == [
        Access(3, 'odd "name"', "grüppe", 7, 1, "F", "R", -1),
        Access(3, "bn", "bn#buffers", 7, 1, "F", "W", (7, 1)),
    ]


def test_line_has_the_documented_keys_in_order(tmp_path: Path) -> None:
    log = AccessLog(tmp_path / "access.jsonl", 0)
    log.parameters("s", "g", 1, -1, "U", "W", 1)
    log.buffers("s", "g#buffers", 1, 0, "F", "R", (-1, -1))
    log.close()
    first, second = (json.loads(line) for line in (tmp_path / "access.jsonl").read_text().splitlines())
    assert list(first) == "worker step group seq micro phase rw version".split()
    assert first["version"] == 1 and second["version"] == [-1, -1]


def test_nothing_is_in_the_file_before_a_flush_and_all_after(tmp_path: Path) -> None:
    path = tmp_path / "access.jsonl"
    log = AccessLog(path, 0)
    log.parameters("s", "g", 0, 0, "F", "R", -1)
    assert path.stat().st_size == 0
    log.sync()
    assert len(list(read_accesses(path))) == 1
    for _ in range(access.FLUSH_LINES):
        log.parameters("s", "g", 0, 0, "F", "R", -1)
    assert len(list(read_accesses(path))) == 1 + access.FLUSH_LINES
    log.close()


def test_several_processes_append_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "access.jsonl"
    code = (
        "import sys, pathlib; from sennit.trace.access import AccessLog\n"
        "log = AccessLog(pathlib.Path(sys.argv[1]), int(sys.argv[2]))\n"
        "for i in range(3000):\n"
        "    log.parameters('step', 'group', i, 0, 'F', 'R', -1)\n"
        "    if i % 7 == 0: log.flush()\n"
        "log.close()"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(path), str(w)]) for w in range(2)]
    assert [p.wait(60) for p in running] == [0, 0]
    found = list(read_accesses(path))
    for worker in range(2):
        assert [a.seq for a in found if a.worker == worker] == list(range(3000))


def test_last_line_without_end_is_left_out(tmp_path: Path) -> None:
    log = AccessLog(tmp_path / "a", 0)
    log.parameters("s", "g", 0, 0, "F", "R", -1)
    log.parameters("s", "g", 1, 0, "F", "R", 0)
    log.close()
    os.truncate(tmp_path / "a", (tmp_path / "a").stat().st_size - 3)
    assert [a.seq for a in read_accesses(tmp_path / "a")] == [0]


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        '{"worker":0}',
        '{"worker":0,"step":"s","group":"g","seq":0,"micro":0,"phase":"X","rw":"R","version":0}',
        '{"worker":0,"step":"s","group":"g","seq":0,"micro":0,"phase":"F","rw":"R","version":"0"}',
        '{"worker":0,"step":"s","group":"g","seq":0,"micro":0,"phase":"F","rw":"R","version":0,"more":1}',
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    good = '{"worker":0,"step":"s","group":"g","seq":0,"micro":0,"phase":"F","rw":"R","version":0}\n'
    (tmp_path / "a").write_text(good + line + "\n" + good)
    with pytest.raises(UserError, match=r"line 2 is no access"):
        list(read_accesses(tmp_path / "a"))


def test_a_missing_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read the access log .*nothing: No such file"):
        list(read_accesses(tmp_path / "nothing"))


def test_a_full_disk_is_a_run_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = AccessLog(Path("/dev/full"), 0)
    log.parameters("s", "g", 0, 0, "F", "R", -1)
    with pytest.raises(RunError, match=r"/dev/full could not be written: No space left"):
        log.flush()
    log.close()


def test_a_partial_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, bytes(data)[:10]))
    log = AccessLog(tmp_path / "a", 0)
    log.parameters("s", "g", 5, 0, "F", "R", -1)
    log.close()
    assert [a.seq for a in read_accesses(tmp_path / "a")] == [5]


def test_a_line_costs_microseconds(tmp_path: Path) -> None:
    log = AccessLog(tmp_path / "a", 0)
    start = time.perf_counter()
    for i in range(50_000):
        log.parameters("blocks.3.1", "blocks.3.1", i, 0, "F", "R", i)
    log.close()
    assert (time.perf_counter() - start) / 50_000 < 20e-6  # about 1 µs alone; the machine may be busy
