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

from sennit.schedule.order import Task

_ROW = struct.Struct("=dqii")
"""Time, version, micro-batch and run of a group's last maker."""

NOBODY = -1


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
        self._place = {name: i * _ROW.size for i, name in enumerate(groups)}
        self._memory = mmap.mmap(-1, max(len(self._place) * _ROW.size, mmap.PAGESIZE))
        self.task: Task | None = None
        self.notes = 0
        self.newest = -1

    def note(self, group: str, version: int) -> None:
        """`version` of `group` is there, by what this process does now."""
        task = self.task
        j, run = (NOBODY, NOBODY) if task is None else (task.micro_batch, task.run)
        _ROW.pack_into(self._memory, self._place[group], time.monotonic(), version, j, run)
        self.notes += 1
        self.newest = version

    def made(self, group: str, version: int) -> tuple[float, int, int] | None:
        """Time, micro-batch and run (or `NOBODY`) of the maker of a version; None if that was not the last one."""
        moment, found, j, run = _ROW.unpack_from(self._memory, self._place[group])
        return (moment, j, run) if found == version and moment else None
