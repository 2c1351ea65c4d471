"""The file for Perfetto holds every task, counter and arrow, and is there whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sennit.errors import RunError
from sennit.trace.events import Counted, Trace
from sennit.trace.perfetto import write_perfetto
from sennit.trace.span import Span

FIRST = Span(0, "F", 12, 0, 0, 0.25, 1.25)
SECOND = Span(1, "F", 12, 0, 1, 1.5, 2.5, 1.5, 1.25, "value", "", "0F12.0")
STEPS = Span(0, "U", 12, -1, -1, 3.0, 3.5, 3.0, 3.0, "gradient", "", "9B12.0")
TRACE = Trace({"workers": 2, "note": "</script>"}, [FIRST, STEPS, SECOND], [Counted("bytes", 1, 2.0, 7.0)])


def test_one_slice_a_task_and_one_arrow_a_wait(tmp_path: Path) -> None:
    write_perfetto(tmp_path / "trace.json", TRACE)
    assert [p.name for p in tmp_path.iterdir()] == ["trace.json"]
    held = json.loads((tmp_path / "trace.json").read_text())
    assert held["otherData"]["note"] == "</script>" and held["otherData"]["left_out"] == 0
    events = held["traceEvents"]
    slices = {e["name"]: e for e in events if e["ph"] == "X" and not e["tid"]}
    assert slices.keys() == {"F 12.0", "U 12"}
    assert (slices["F 12.0"]["ts"], slices["F 12.0"]["dur"]) == (250_000, 1_000_000)
    (other,) = (e for e in events if e["ph"] == "X" and e["tid"])
    assert other["args"] == {
        "subnet": 12, "micro-batch": 0, "run": 1, "cause": "value", "of": "", "by": "0F12.0", "left": 1_250_000,
        "ready": 1_500_000,
    }  # fmt: skip
    (out,), (into,) = ([e for e in events if e["ph"] == ph] for ph in "sf")  # the maker of STEPS is not in the trace
    assert out["id"] == into["id"] and (out["tid"], into["tid"]) == (0, 1)
    assert 250_000 < out["ts"] < 1_250_000 and into["ts"] == 1_500_000, "each in its slice"
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} == {"sennit", "worker 0", "worker 1"}
    assert [e["args"]["value"] for e in events if e["ph"] == "C"] == [7.0]


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    write_perfetto(tmp_path / "trace.json", Trace({}, [FIRST], left_out=41))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["name"] for e in events if e["ph"] == "i"] == ["41 earlier tasks are left out"]


def test_a_call_without_tasks(tmp_path: Path) -> None:
    write_perfetto(tmp_path / "trace.json", Trace({"workers": 1}, []))
    assert {e["ph"] for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]} == {"M"}


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"trace.json could not be written: No such file"):
        write_perfetto(tmp_path / "no folder" / "trace.json", TRACE)
    (tmp_path / "trace.json").write_text("old")
    (tmp_path / ".trace.json.writing").symlink_to("/dev/full")
    with pytest.raises(RunError, match="could not be written: No space left"):
        write_perfetto(tmp_path / "trace.json", TRACE)
    assert (tmp_path / "trace.json").read_text() == "old" and len(list(tmp_path.iterdir())) == 1
