"""What a host takes beside computation, from a trace drawn by hand and from a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sennit.profile.quick import block_order
from sennit.runtime.host_times import host_times, times_of
from sennit.schedule.order import Task
from sennit.trace.span import Span
from tests.runtime.runs import recipe
from tests.runtime.test_sync_rules import CHAIN


def test_a_trace_drawn_by_hand() -> None:
    """Waits of 10. Tasks last 11, one of them 12; the gap before F1 is 1; messages are heard 3 after a task's end.

    worker 0   F0▓▓▓▓▓▓▓▓▓▓▓.F1▓▓▓▓▓▓▓▓▓▓▓▓      F2▓▓▓▓▓▓▓▓▓▓▓
    worker 1                ...F0▓▓▓▓▓▓▓▓▓▓▓..F1▓▓▓▓▓▓▓▓▓▓▓   ...F2▓▓▓▓▓▓▓▓▓▓▓
    """
    spans = [
        span(0, 0, 0, 11, ready=0),
        span(0, 1, 12, 24, ready=0),
        span(0, 2, 30, 41, ready=29, by="somebody else"),
        span(1, 0, 14, 25, ready=13, by=task(0, 0)),
        span(1, 1, 27, 38, ready=26, by=task(1, 0)),  # made before worker 1 was free: says nothing of messages
        span(1, 2, 44, 55, ready=43, by=task(2, 0)),
    ]
    found = times_of(spans, {task(y, run): 10.0 for y in range(3) for run in range(2)})
    assert (found.task, found.gap, found.message) == pytest.approx((7 / 6, 1.0, 2.0))
    assert found.cluster.host_s == pytest.approx(7 / 6 + 1)
    assert found.cluster.seconds(0, 1, 1e9) == pytest.approx(2.0)


def task(y: int, run: int) -> str:
    return str(Task("F", y, 0, run))


def span(worker: int, y: int, start: float, end: float, ready: float, by: str = "") -> Span:
    """A forward of subnet `y` on the run of a worker."""
    return Span(worker, "F", y, 0, worker, start, end, ready, ready, "value" if by else "start", "", by)


def test_a_run(tmp_path: Path) -> None:
    made = recipe(**{**CHAIN, "clip": "global:1.0"})
    rows: dict[str, Any] = {b: {"forward": 0.002, "backward": 0.004} for b in block_order(made.built)}
    waits = tmp_path / "waits.json"
    waits.write_text(json.dumps({"format": "sennit.waits/1", "blocks": rows}))
    found = host_times(made, 2, waits)
    assert found.task > 0
    assert found.gap > 0
    assert found.message >= 0
