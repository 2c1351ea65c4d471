"""Traces: what is written is what is read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sennit.errors import UserError
from sennit.trace.events import Counted, Trace, device_times, name_of, read_call, refuse_impossible
from sennit.trace.span import Span
from sennit.trace.span_log import FLUSH_LINES, SpanLog

FIRST = Span(0, "F", 0, 0, 0, 0.0, 1.0)
SECOND = Span(1, "F", 0, 0, 1, 1.5, 2.5, 1.25, 1.0, "value", 'odd "name" </script>\n', "0F0.0", 0.75, 0.625)


def test_round_trip(tmp_path: Path) -> None:
    log = SpanLog(tmp_path / "t")
    log.facts({"workers": 3, "unit": "s"})
    log.write(SECOND)
    log.count("bytes", 1, 0.5, 1024.0)
    log.write(FIRST)
    log.close()
    trace = read_call(tmp_path / "t")
    assert trace.spans == [FIRST, SECOND] and trace.workers == 3 and trace.calls == 1
    assert trace.counters == [Counted("bytes", 1, 0.5, 1024.0)]
    keys = set(Span._fields)
    assert all(json.loads(line).keys() <= keys for line in (tmp_path / "t").read_text().splitlines() if "kind" in line)


def test_lines_as_the_simulator_writes_them(tmp_path: Path) -> None:
    lines = [{"facts": {"workers": 2}}, SECOND._asdict(), FIRST._asdict()]
    (tmp_path / "t").write_text("".join(json.dumps(line).replace(": ", ":") + "\n" for line in lines))
    assert read_call(tmp_path / "t").spans == [FIRST, SECOND]


def test_the_last_call_is_read_and_a_torn_line_is_not(tmp_path: Path) -> None:
    for call in range(2):
        log = SpanLog(tmp_path / "t")
        log.facts({"workers": 1, "first": call})
        for y in range(4):
            log.write(FIRST._replace(seq_id=10 * call + y, start=y, end=y + 1))
        log.close()
    with (tmp_path / "t").open("a") as file:
        file.write('{"worker":0,"kind":"F"')
    trace = read_call(tmp_path / "t")
    assert trace.calls == 2 and trace.facts["first"] == 1
    assert [span.seq_id for span in trace.spans] == [10, 11, 12, 13]
    last = read_call(tmp_path / "t", most=3)
    assert [span.seq_id for span in last.spans] == [11, 12, 13] and last.left_out == 1


def test_memory_is_bounded_by_flushes(tmp_path: Path) -> None:
    log = SpanLog(tmp_path / "t")
    for _ in range(FLUSH_LINES - 1):
        log.write(FIRST)
    assert not (tmp_path / "t").stat().st_size
    log.write(FIRST)
    assert len((tmp_path / "t").read_text().splitlines()) == FLUSH_LINES
    log.close()


def test_several_processes_append_whole_lines(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from sennit.trace.span_log import SpanLog; from sennit.trace.span import Span\n"
        "log = SpanLog(pathlib.Path(sys.argv[1]))\n"
        "for y in range(3000): log.write(Span(int(sys.argv[2]), 'F', y, 0, 0, float(y), y + 1.0))\n"
        "log.close()"
    )
    (tmp_path / "t").write_text('{"facts":{"workers":2}}\n')
    running = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "t"), str(w)]) for w in range(2)]
    assert [p.wait(60) for p in running] == [0, 0]
    assert [(s.worker, s.seq_id) for s in read_call(tmp_path / "t").spans] == [
        (w, y) for w in range(2) for y in range(3000)
    ]


BAD_FACTS = ({"workers": "x"}, {"workers": [1]}, {"workers": -5}, {"workers": 1 << 17}, {"began": 1e300}, {"unit": {}})
BAD_SPANS = (
    {"worker": -1}, {"worker": 3_000_000_000}, {"kind": "X"}, {"cause": "whim"}, {"seq_id": 1 << 31}, {"end": -1.0},
    {"end": 1e300}, {"left": -1e300}, {"ready": "now"},
)  # fmt: skip
BAD = [
    "not json", '{"worker":0}', '{"counter":1}', '{"facts":3}', '{"counter":"b","worker":-3,"time":0.0,"value":1.0}',
    *(json.dumps({"facts": facts}, separators=(",", ":")) for facts in BAD_FACTS),
    *(json.dumps({**FIRST._asdict(), **changes}) for changes in BAD_SPANS),
]  # fmt: skip


@pytest.mark.parametrize("line", BAD)
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "t").write_text('{"facts":{}}\n' + line + "\n")
    with pytest.raises(UserError, match=r"line 2 is none of a trace: .*; put it back"):
        read_call(tmp_path / "t")


def test_what_is_no_trace_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read the trace .*nothing: No such file"):
        read_call(tmp_path / "nothing")
    (tmp_path / "t").write_text(json.dumps(FIRST._asdict()) + "\n")
    with pytest.raises(UserError, match=r"no line of facts"):
        read_call(tmp_path / "t")


@pytest.mark.parametrize(
    ("spans", "said"),
    [
        ([FIRST, FIRST], "0F0.0 runs twice"),
        ([FIRST, FIRST._replace(worker=1)], "0F0.0 runs twice"),
        ([FIRST, FIRST._replace(seq_id=1, start=0.5)], r"worker 0, 0F1.0 starts at 0.5, before 0F0.0 ends at 1;"),
        ([FIRST, FIRST._replace(seq_id=1, start=0.2, end=0.4)], r"0F1.0 starts at 0.2, before 0F0.0 ends at 1;"),
    ],
)
def test_what_no_worker_can_have_done_is_refused(spans: list[Span], said: str) -> None:
    with pytest.raises(UserError, match=f"t.jsonl is damaged: .*{said}"):
        refuse_impossible(Path("t.jsonl"), Trace({}, spans))


def test_what_workers_do() -> None:
    """One task after the other, tasks that take no time, the same step twice; a GPU's times may overlap by rounding."""
    nothing = FIRST._replace(seq_id=1, start=1.0)
    step = FIRST._replace(kind="U", micro_batch=-1, run=-1, start=3.0, end=3.5)
    spans = [FIRST, nothing._replace(seq_id=2, end=2.0), nothing, step, step._replace(start=3.5, end=4.0)]
    refuse_impossible(Path("t"), Trace({"device": "cpu"}, [*spans, SECOND]))
    refuse_impossible(Path("t"), Trace({"device": "cuda"}, [FIRST, nothing._replace(start=0.9999, end=2.0)]))


def test_nothing_leaves_a_gpu_before_it_is_made() -> None:
    """The host sends at .2 what its device has ended at 1; it is noticed there at .3, since the device is late, too."""
    early = SECOND._replace(left=0.2, ready=0.3)
    fixed = device_times([FIRST, early])
    assert fixed == [FIRST, early._replace(left=1.0, ready=1.0)]
    assert device_times([FIRST, SECOND]) == [FIRST, SECOND] and name_of(FIRST) == SECOND.by
    begun = early._replace(start=0.7)  # what it needed had left before the step that ends the other task
    assert device_times([FIRST, begun]) == [FIRST, begun._replace(left=0.7, ready=0.7)]
