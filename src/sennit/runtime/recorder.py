"""`Recorder`: writes the spans of one worker. A few microseconds a task, and no more than a flush of lines is held.

reason (when and why ready) ──┐
lap of the stopwatch ─────────┴──▶ Span ──▶ trace.jsonl
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from sennit.runtime.board import Board
from sennit.runtime.channel import Message
from sennit.runtime.reasons import Reason, Reasons, maker
from sennit.runtime.stopwatch import Launching, Then
from sennit.schedule.order import Task
from sennit.trace.span import Span
from sennit.trace.span_log import SpanLog

STEPS = "U"
"""Kind of spans of optimizer steps outside of tasks."""

LET_IN = "subnets let in"
"""Counter: how many subnets have come in at a worker."""


class Recorder:
    """Spans of one worker.

    Args:
        path: `trace.jsonl` of the run.
    """

    def __init__(self, path: Path, worker: int, board: Board, ready: Reasons) -> None:
        self.worker, self.board, self.ready = worker, board, ready
        self.log = SpanLog(path)

    def task(self, task: Task) -> Then:
        """A task begins."""
        self.board.task = task
        reason = self.ready.take_reason(task)

        def then(start: float, end: float, host: Launching) -> None:
            what = task.kind, task.seq_id, task.micro_batch, task.run
            self._write(*what, start, end, reason, host)

        return then

    def outside(self, message: Message | None) -> int:
        """Steps may follow outside of this worker's tasks, on the account of who sent `message`. Returns a mark."""
        self.board.task = None if message is None else maker(message)
        return self.board.notes

    def steps(self, message: Message | None, mark: int) -> Then | None:
        """They have ended; None if there were none since `mark`."""
        if self.board.notes == mark:
            return None
        newest, by = self.board.newest, self.board.task

        def then(start: float, end: float, host: Launching) -> None:
            left = start if message is None else min(message.sent, start)
            self._write(STEPS, newest, -1, -1, start, end, Reason(start, left, "gradient", "", by), host)

        return then

    def count(self, counters: Mapping[str, float]) -> None:
        """Values of counters now, by name."""
        now = time.monotonic() - self.board.origin
        for name, value in counters.items():
            self.log.count(name, self.worker, now, value)

    def flush(self) -> None:
        self.log.flush()

    def close(self) -> None:
        self.log.close()

    def _write(
        self, kind: str, y: int, j: int, run: int, start: float, end: float, reason: Reason, host: Launching
    ) -> None:
        ready, left, cause, of, by, awaited = reason
        if awaited:  # the device had nothing else to wait for, and began when it was there
            ready = max(ready, start)
        t = self.board.origin
        times = start - t, end - t, ready - t, left - t
        told = cause, of, str(by or ""), host.begin - t if host.seconds else 0.0, host.seconds, host.waited
        self.log.write(Span(self.worker, kind, y, j, run, *times, *told))
