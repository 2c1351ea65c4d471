"""Workers write down every task once, with what it waited for. Held against the access log, which knows no times."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from sennit.recipe import CheckpointRule
from sennit.trace.access import Access, read_accesses
from sennit.trace.events import Trace, name_of, read_call
from tests.runtime.runs import recipe, run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spans") / "run"
    run(recipe(checkpoint=CheckpointRule(every=5)), folder, workers=3)
    return folder


def told(folder: Path) -> tuple[Trace, list[Access]]:
    return read_call(folder / "trace.jsonl"), list(read_accesses(folder / "access.jsonl"))


def test_every_task_is_there_once_with_the_worker_that_ran_it(made: Path) -> None:
    trace, accesses = told(made)
    tasks = Counter(name_of(span) for span in trace.spans if span.kind != "U")
    assert set(tasks.values()) == {1}
    found = {(s.worker, s.kind, s.seq_id, s.micro_batch) for s in trace.spans if s.kind != "U"}
    logged = {(a.worker, a.phase, a.seq, a.micro) for a in accesses if a.phase != "U"}
    assert logged <= found  # a run of steps without weights accesses nothing
    assert {s.seq_id for s in trace.spans} == set(range(16)) and trace.workers == 3


def test_a_task_begins_after_what_it_waited_for_was_made(made: Path) -> None:
    trace, _ = told(made)
    by_name = {name_of(span): span for span in trace.spans if span.kind != "U"}
    for span in trace.spans:
        assert 0 <= span.left <= span.ready <= span.start <= span.end, span
        if span.cause in ("value", "gradient") and span.kind != "U":
            assert by_name[span.by].start <= span.left
            assert by_name[span.by].seq_id == span.seq_id and by_name[span.by].micro_batch == span.micro_batch
    for before, after in zip(trace.spans, trace.spans[1:], strict=False):
        assert before.worker < after.worker or before.end <= after.start, "one task at a time"


def test_versions_and_buffers_are_those_that_the_access_log_has(made: Path) -> None:
    trace, accesses = told(made)
    read = {(a.seq, a.micro, a.group, a.version) for a in accesses if a.phase == "F" and a.rw == "R"}
    waited = [span for span in trace.spans if span.cause in ("version", "buffer")]
    assert {span.cause for span in waited} == {"version", "buffer"}
    for span in waited:
        maker = span.by.split("B" if span.cause == "version" else "F")[1]
        seq_id, micro_batch = (int(n) for n in maker.split("."))
        version = seq_id if span.cause == "version" else (seq_id, micro_batch)
        assert (span.seq_id, span.micro_batch, span.of, version) in read, span


def test_subnets_come_in_with_the_run_or_after_a_cut(made: Path) -> None:
    trace, _ = told(made)
    cause = {name_of(span): (span.cause, span.of) for span in trace.spans}
    assert cause["0F0.0"] == ("start", "")
    assert [cause[f"0F{y}.0"] for y in (5, 10, 15)] == [("cut", "")] * 3


def test_a_subnet_waits_for_its_turn(tmp_path: Path) -> None:
    made = recipe(space="sink.py:Fixed", shared="frozen", steps=6)
    run(made, tmp_path / "turns", workers=1, in_flight=2)
    spans = read_call(tmp_path / "turns" / "trace.jsonl").spans
    first = {s.seq_id: (s.cause, s.of) for s in spans if (s.kind, s.micro_batch, s.run) == ("F", 0, 0)}
    assert first == {0: ("start", ""), 1: ("start", ""), **{y: ("admitted", f"subnet {y - 2}") for y in (2, 3, 4, 5)}}


@pytest.mark.parametrize("shared", ["strict", "delayed:2"])
def test_the_bubble_is_what_spans_leave_open(shared: str, tmp_path: Path) -> None:
    result = run(recipe(shared=shared), tmp_path / "run", workers=2)
    spans = read_call(tmp_path / "run" / "trace.jsonl").spans
    seconds = result["steps"] / result["subnets_per_s"]
    busy = sum(span.end - span.start for span in spans)
    # messages that bring no step are timed, too, but are no span
    assert result["bubble"] == pytest.approx(1 - busy / (2 * seconds), abs=0.02)
    assert any(span.kind == "U" for span in spans)


def test_a_resumed_run_goes_on_where_its_checkpoint_was(tmp_path: Path) -> None:
    path = tmp_path / "run" / "trace.jsonl"
    run(recipe(), tmp_path / "run", workers=2, steps=7)
    before = path.read_bytes()
    path.write_bytes(before + b'{"worker":0,"kind":"F","seq_id":7,"micro_ba')  # killed later on, in a write
    run(recipe(), tmp_path / "run", workers=1, resume=True)
    assert path.read_bytes().startswith(before)
    trace = read_call(path)
    assert trace.calls == 2 and trace.workers == 1 and trace.facts["first"] == 7
    assert {span.seq_id for span in trace.spans} == set(range(7, 16))
    tasks = [e for e in json.loads((tmp_path / "run" / "trace.json").read_text())["traceEvents"] if e["ph"] == "X"]
    assert len(tasks) == len(trace.spans)


def test_the_plain_loop_has_no_trace(tmp_path: Path) -> None:
    run(recipe(steps=2), tmp_path / "run", engine="plain")
    assert not list((tmp_path / "run").glob("trace*"))
