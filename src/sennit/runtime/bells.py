"""`Bells`: wake workers that wait for words in shared memory: versions, turns of buffers, low-water marks.

Whoever writes such a word sends no message, and whoever waits for one would have to look again and again.

    waiter    put up what it waits for ── look once more ── sleep on its pipe ──────── awake, take down
    writer                    write the word ── who waits for that? ── a byte into the pipe ──┘

What is awaited goes up before the last look, so a word that is written after that look finds it. It is a set of bits,
one of them for many groups: a bell may ring for nothing, never stay silent.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterable

from sennit.memory.asked import ASKED

LOW = "low-water mark"
"""What to wait for until a subnet is finished everywhere."""

_BITS = 62
"""Of 64, for groups; the last two are `ASKED` and `LOW`."""


class Bells:
    """One bell per worker. Made before the fork.

    Args:
        workers: how many there are.
        groups: names of all groups.
    """

    def __init__(self, workers: int, groups: Iterable[str]) -> None:
        self._awaited = memoryview(mmap.mmap(-1, max(8 * workers, mmap.PAGESIZE))).cast("Q")[:workers]
        self._bits = {LOW: 1 << 63, ASKED: 1 << _BITS, **{group: 1 << i % _BITS for i, group in enumerate(groups)}}
        self._pipes = [os.pipe() for _ in range(workers)]
        for pipe in self._pipes:
            for end in pipe:
                os.set_blocking(end, False)

    def fileno_of(self, rank: int) -> int:
        """What worker `rank` sleeps on."""
        return self._pipes[rank][0]

    def put_up(self, rank: int, names: Iterable[str]) -> bool:
        """Put up what worker `rank` waits for: names of groups, `LOW` or `ASKED`.

        Returns:
            Whether it was up before: then everything was looked at since, and the worker may sleep.
        """
        awaited = 0
        for name in names:
            awaited |= self._bits[name]
        was_up = self._awaited[rank] == awaited
        self._awaited[rank] = awaited
        return was_up

    def take_down(self, rank: int) -> None:
        """Worker `rank` is awake."""
        self._awaited[rank] = 0
        with contextlib.suppress(BlockingIOError):
            while os.read(self._pipes[rank][0], mmap.PAGESIZE):
                pass

    def ring(self, name: str) -> None:
        """Wake the workers that wait for `name`: its word was written."""
        bit = self._bits[name]
        for rank, awaited in enumerate(self._awaited.tolist()):
            if awaited & bit:
                self._awaited[rank] = 0
                with contextlib.suppress(BlockingIOError):  # a full pipe wakes as well
                    os.write(self._pipes[rank][1], b"\0")

    def close(self) -> None:
        """Close the pipes in this process."""
        for pipe in self._pipes:
            for end in pipe:
                os.close(end)
        self._pipes.clear()
