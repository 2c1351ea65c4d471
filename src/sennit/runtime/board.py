"""`Board`: when the newest version of each group was made, and by which task. For the trace alone.

Versions are published without a message, so a worker that waited for one cannot know whose work it was. Whoever
steps a group, or moves buffers, notes it here, in memory that all workers share. No decision reads it.

Times are those of CLOCK_MONOTONIC: one clock for all processes of a Linux host.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Iterable
from typing import cast
from zlib import crc32

from sennit.schedule.action import Kind
from sennit.schedule.order import Task

_ROW = struct.Struct("=dqcii")
"""Time and version of a group's last change, and kind, micro-batch and run of the task that made it."""

_SUM = struct.Struct("=I")
"""Checksum of a row behind it: whoever reads while another process writes must not take half of each."""

_SIZE = _ROW.size + _SUM.size

TRIES = 3
"""How often a row that is being written is read again."""


class Board:
    """Made before the fork.

    Args:
        groups: names of all groups.

    Attributes:
        origin: the moment from which the trace counts, seconds.
        task: the task on whose account this process steps groups, if there is one.
        notes: how many notes this process has made.
        newest: version of the last one.
    """

    def __init__(self, groups: Iterable[str]) -> None:
        self.origin = time.monotonic()
        self._place = {name: i * _SIZE for i, name in enumerate(groups)}
        self._memory = mmap.mmap(-1, max(len(self._place) * _SIZE, mmap.PAGESIZE))
        self.task: Task | None = None
        self.notes = 0
        self.newest = -1

    def note(self, group: str, version: int) -> None:
        """`version` of `group` is there, by what this process does now. Whoever publishes it notes it before and after:
        its maker is known before the version is seen, the moment just after."""
        self._put(group, version, self.task)
        self.notes += 1
        self.newest = version

    def told(self, group: str, version: int, task: Task | None) -> None:
        """`version` of `group` has come from another host, where that task made it: it is there now."""
        self._put(group, version, task)

    def _put(self, group: str, version: int, task: Task | None) -> None:
        kind, j, run = (b"-", -1, -1) if task is None else (task.kind.encode(), task.micro_batch, task.run)
        row, place = _ROW.pack(time.monotonic(), version, kind, j, run), self._place[group]
        self._memory[place : place + _SIZE] = row + _SUM.pack(crc32(row))

    def made(self, group: str, version: int) -> tuple[float, Task | None] | None:
        """When a version was made, and by which of its subnet's tasks; None if it was not the last one."""
        place = self._place[group]
        for _ in range(TRIES):
            held = self._memory[place : place + _SIZE]
            if _SUM.unpack_from(held, _ROW.size)[0] == crc32(held[: _ROW.size]):
                break
        else:
            return None
        moment, found, kind, j, run = _ROW.unpack_from(held)
        if found != version:
            return None
        return moment, None if kind == b"-" else Task(cast("Kind", kind.decode()), version, j, run)
