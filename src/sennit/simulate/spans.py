"""What a simulation did, as a file. `write_spans`: a line of facts, then a line for each task.

    {"facts": {"workers": 8, "bubble": 0.01, ...}}
    {"worker": 0, "kind": "F", "seq_id": 0, "micro_batch": 0, "run": 0, "start": 0.0, "end": 0.1, "ready": 0.0, ...}

The keys of a task are the fields of `sennit.trace.span.Span`. Lines are written as they come, so that a file may be
larger than the memory.

`write_order`: a row of actions for each worker, as CSV.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from sennit.errors import UserError
from sennit.schedule.action import Action, Kind, Row, write_csv
from sennit.trace.span import Span


def write_spans(path: Path, facts: Mapping[str, Any], spans: Iterable[Span]) -> None:
    """Write a trace.

    Args:
        facts: of the whole simulation, JSON values.
        spans: in any order.

    Raises:
        UserError: the file cannot be written.
    """
    encode = msgspec.json.encode
    try:
        with path.open("wb") as file:
            file.write(encode({"facts": facts}) + b"\n")
            file.writelines(encode(span._asdict()) + b"\n" for span in spans)
    except OSError as error:
        raise UserError(f"--trace: cannot write {path}: {error.strerror}") from error


def write_order(path: Path, spans: Iterable[Span], micro_batches: int) -> None:
    """Write each worker's tasks in their order. A task's stage is its run; micro-batches are numbered through.

    Args:
        spans: of one worker in the order in which they ran.
        micro_batches: M of each subnet.

    Raises:
        UserError: the file cannot be written.
    """
    table: dict[int, Row] = {}
    for span in spans:
        action = Action(span.run, cast("Kind", span.kind), span.seq_id * micro_batches + span.micro_batch)
        table.setdefault(span.worker, []).append(action)
    try:
        path.write_text(write_csv(table))
    except OSError as error:
        raise UserError(f"--csv: cannot write {path}: {error.strerror}") from error
