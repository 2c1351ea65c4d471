"""Reading traces: spans and counters of one call, as workers (`span_log.py`) and the simulator write them.

A run that was resumed has several calls in one file, each begun by a line of facts; times count from there. The
last call is read. A last line without its end, left by a process that was killed, is not returned.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from sennit.errors import UserError
from sennit.trace.span import Cause, Span

FACTS, COUNTER = b'{"facts"', b'{"counter"'
"""How lines begin that are no spans."""


KNOB = "put it back as it was written, or move it away: a run is shown without its trace, too"

MOST_WORKERS = 1 << 16
"""Numbers that the page has room for."""

Worker = Annotated[int, Meta(ge=0, lt=MOST_WORKERS)]
Number = Annotated[int, Meta(ge=-1, lt=1 << 31)]
Time = Annotated[float, Meta(ge=-1e15, le=1e15)]
"""In the trace's unit; sums and nanoseconds of it stay finite."""


class Counted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value of a counter, such as bytes in use, at a time. Written by worker `worker`."""

    counter: str
    worker: Worker
    time: Time
    value: float


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """Fields as in `Span`."""

    worker: Worker
    kind: Literal["F", "B", "I", "W", "U"]
    seq_id: Number
    micro_batch: Number
    run: Number
    start: Time
    end: Time
    ready: Time = 0.0
    left: Time = 0.0
    cause: Cause = "start"
    of: str = ""
    by: str = ""
    launched: Time = 0.0
    host: Time = 0.0
    waited: Time = 0.0

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise ValueError(f"it ends at {self.end:g}, before it starts at {self.start:g}")


class _Facts(msgspec.Struct):
    """Those that are read; there may be any others."""

    workers: Annotated[int, Meta(ge=0, le=MOST_WORKERS)] = 0
    device: str = ""
    unit: str = ""
    began: Annotated[float, Meta(ge=0, le=2.5e11)] = 0.0
    """Seconds since 1970; no calendar goes on beyond the year 9999."""
    bubble_at_bound: float | None = None
    binds: str = ""
    schedule: str = ""


class _Call(msgspec.Struct):
    facts: _Facts


@dataclass(frozen=True)
class Trace:
    """One call.

    Attributes:
        facts: what its first line says: workers, device, unit of time, ...
        spans: by worker and start.
        counters: by time.
        left_out: how many earlier spans were not read.
        calls: how many calls the file holds; this is the last one.
    """

    facts: dict[str, Any]
    spans: list[Span]
    counters: list[Counted] = field(default_factory=list)
    left_out: int = 0
    calls: int = 1

    @property
    def workers(self) -> int:
        """How many tracks there are; a worker may have run nothing."""
        return max([self.facts.get("workers", 0), *(span.worker + 1 for span in self.spans)])


def trace_beside(log: Path) -> Path:
    """`trace.jsonl` of the run that another log belongs to."""
    return log.with_name("trace.jsonl")


def read_call(path: Path, most: int | None = None) -> Trace:
    """The last call of a trace.

    Args:
        most: keep the last `most` lines of spans and of counters.

    Raises:
        UserError: the file cannot be read, or a line is none of a trace; names the line.
    """
    facts: tuple[int, bytes] | None = None
    spans: deque[tuple[int, bytes]] = deque(maxlen=most)
    counters: deque[tuple[int, bytes]] = deque(maxlen=most)
    calls = seen = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                if line.startswith(FACTS):
                    facts = (number, line)
                    calls, seen = calls + 1, 0
                    spans.clear()
                    counters.clear()
                elif line.startswith(COUNTER):
                    counters.append((number, line))
                else:
                    spans.append((number, line))
                    seen += 1
    except OSError as error:
        raise UserError(f"cannot read the trace {path}: {error.strerror}") from error
    if facts is None:
        raise UserError(
            f"{path} has no line of facts, so it is no trace; give a run folder, or a file of `sennit simulate --trace`"
        )
    decode = msgspec.json.Decoder(_Line).decode
    found = [Span(*msgspec.structs.astuple(_decoded(path, decode, line))) for line in spans]
    _decoded(path, msgspec.json.Decoder(_Call).decode, facts)
    told: dict[str, Any] = _decoded(path, msgspec.json.Decoder(dict[str, dict[str, Any]]).decode, facts)["facts"]
    if told.get("device") == "cuda":
        found = device_times(found)
    return Trace(
        told,
        sorted(found, key=lambda span: (span.worker, span.start)),
        sorted((_decoded(path, msgspec.json.Decoder(Counted).decode, c) for c in counters), key=lambda c: c.time),
        seen - len(found),
        max(calls, 1),
    )


OVERLAP = 1e-6
"""Seconds that tasks may overlap by rounding, where the host's clock took their times."""


def refuse_impossible(path: Path, trace: Trace) -> None:
    """A worker runs one task at a time, and each task once.

    Raises:
        UserError: two overlap, or one is there twice; names them.
    """
    seen: set[str] = set()
    for span in trace.spans:
        name = name_of(span)
        if span.kind != "U" and name in seen:  # steps come whenever the last gradient does
            raise UserError(f"{path} is damaged: {name} runs twice; {KNOB}")
        seen.add(name)
    if trace.facts.get("device") == "cuda":
        return  # a device's times have seven digits, however long ago it began
    for one, two in pairwise(sorted(trace.spans, key=lambda span: (span.worker, span.start, span.end))):
        if one.worker == two.worker and two.start < one.end - OVERLAP * max(1.0, abs(one.end)):
            raise UserError(
                f"{path} is damaged: on worker {one.worker}, {name_of(two)} starts at {two.start:g}, before "
                f"{name_of(one)} ends at {one.end:g}; {KNOB}"
            )


def device_times(spans: list[Span]) -> list[Span]:
    """On a GPU the host sends what the device has not made yet.

    Nothing leaves before the task that makes it ends; unless it has been begun with before: a backward steps after it
    has sent its gradient.
    """
    ends = {name_of(span): span.end for span in spans}
    fixed: list[Span] = []
    for span in spans:
        left = max(span.left, min(ends.get(span.by, span.left), span.start))
        fixed.append(span._replace(left=left, ready=max(span.ready, left)) if left > span.left else span)
    return fixed


def name_of(span: Span) -> str:
    """As `by` names it: `3F17.0` is run 3, forward, subnet 17, micro-batch 0."""
    return f"{span.run}{span.kind}{span.seq_id}.{span.micro_batch}"


def _decoded(path: Path, decode: Any, line: tuple[int, bytes]) -> Any:
    try:
        return decode(line[1])
    except msgspec.DecodeError as error:
        shown = line[1][:100].decode(errors="replace").rstrip()
        raise UserError(f"{path}, line {line[0]} is none of a trace: {error}: {shown}; {KNOB}") from error
