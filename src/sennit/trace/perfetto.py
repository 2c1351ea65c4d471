"""`write_perfetto`: a trace as Chrome trace events, for https://ui.perfetto.dev and chrome://tracing.

    one track per worker      "M" thread_name       worker 1
    one slice per task        "X"                   F 12.0    args: subnet, micro-batch, run, cause, ...
    one arrow per wait        "s" ──▶ "f"           from the task that made what came last
    one curve per counter     "C"

Event format: "Trace Event Format", Google, 2016. Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from sennit.errors import RunError
from sennit.trace.events import Trace, name_of
from sennit.trace.span import Span

MOST_SPANS = 200_000
"""Slices in a file, the most recent ones: some 80 megabytes. Perfetto keeps what it opens in the browser's memory."""


def write_perfetto(path: Path, trace: Trace) -> None:
    """Write a file for Perfetto, whole or not at all.

    Raises:
        RunError: it could not be written; what was there before still is.
    """
    aside, encode = path.with_name(f".{path.name}.writing"), msgspec.json.encode
    other = {**trace.facts, "left_out": trace.left_out}
    try:
        with aside.open("wb") as file:
            file.write(b'{"displayTimeUnit":"ms","otherData":' + encode(other) + b',"traceEvents":[\n')
            separator = b""
            for event in events(trace):
                file.write(separator + encode(event))
                separator = b",\n"
            file.write(b"\n]}\n")
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise RunError(f"{path} could not be written: {error.strerror}") from error


def events(trace: Trace) -> Iterator[dict[str, Any]]:
    """The trace events, in no particular order."""
    yield {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "sennit"}}
    for worker in range(trace.workers):
        yield {"ph": "M", "name": "thread_name", "pid": 0, "tid": worker, "args": {"name": f"worker {worker}"}}
    if trace.left_out:
        note = f"{trace.left_out} earlier tasks are left out"
        at = _us(min(span.start for span in trace.spans))
        yield {"ph": "i", "s": "g", "name": note, "pid": 0, "tid": 0, "ts": at}
    makers = {name_of(span): span for span in trace.spans if span.kind != "U"}
    for number, span in enumerate(trace.spans):
        yield _slice(span)
        if (maker := makers.get(span.by)) is not None:
            flow = {"cat": span.cause, "name": span.cause, "id": number, "pid": 0}
            # an arrow starts in the slice that contains its time, so just before that slice's end
            yield {**flow, "ph": "s", "tid": maker.worker, "ts": _us((maker.start + 7 * maker.end) / 8)}
            yield {**flow, "ph": "f", "bp": "e", "tid": span.worker, "ts": _us(span.start)}
    for c in trace.counters:
        name = f"{c.counter}, worker {c.worker}"
        yield {"ph": "C", "name": name, "pid": 0, "tid": c.worker, "ts": _us(c.time), "args": {"value": c.value}}


def _slice(span: Span) -> dict[str, Any]:
    args = {
        "subnet": span.seq_id, "micro-batch": span.micro_batch, "run": span.run, "cause": span.cause, "of": span.of,
        "by": span.by, "left": _us(span.left), "ready": _us(span.ready),
    }  # fmt: skip
    name = f"U {span.seq_id}" if span.kind == "U" else f"{span.kind} {span.seq_id}.{span.micro_batch}"
    return {
        "ph": "X", "name": name, "cat": span.kind, "pid": 0, "tid": span.worker, "ts": _us(span.start),
        "dur": _us(span.end - span.start), "args": args,
    }  # fmt: skip


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)
