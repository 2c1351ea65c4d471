"""Who made a version, told through memory that all workers share."""

from __future__ import annotations

import os
import signal
import time

from sennit.runtime.board import Board
from sennit.schedule.order import Task


def test_what_nobody_made_has_no_maker() -> None:
    board = Board(["a", "b"])
    board.task = Task("B", 3, 1, 2)
    board.note("a", 3)
    moment, by = board.made("a", 3) or (0.0, None)
    assert moment > 0 and by == Task("B", 3, 1, 2)
    assert board.made("a", 2) is None and board.made("b", 0) is None and board.made("b", -1) is None


def test_a_row_is_never_read_by_halves() -> None:
    """One process writes two rows by turns, as fast as it can; another reads one of them or nothing."""
    board = Board(["a"])
    rows = [Task("F", 7, 3, 5), Task("W", 7, 900_000, 800_000)]
    child = os.fork()
    if not child:
        while True:
            for row in rows:
                board.task = row
                board.note("a", 7)
    try:
        began, found = time.monotonic(), set[Task | None]()
        while time.monotonic() < began + (1.0 if len(found) >= len(rows) else 60.0):
            made = board.made("a", 7)
            if made is not None:
                found.add(made[1])
        assert found == set(rows)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
