"""How often Python looks for garbage while something is trained.

What belongs to a subnet lives as long as it is in flight. Much of it is there when the collector comes by, and is old
for it then, so every few dozen subnets it looked at all that is old: programs, plans and graphs of a large space. On a
busy CPU with a stand-in for graphs that took 140 ms, in which a worker launches nothing and others wait for it.

What training leaves behind is gone when nobody refers to it any more, without the collector: there are no cycles
(`tests/runtime/test_collecting.py`). So it need not come by often. Cycles of a user's own are found all the same, some
subnets later:

    young          50,000 new objects ─▶ looked at ─┐ those that are left, of so many looks ─▶ looked at once more
                                                    └ 10 if garbage was found lately, else 1,000
    more memory    256 MiB and an eighth more than after the last such look ─▶ all that is not old is looked at,
                   and all there is at each fourth

What is left of the young is layers that were used for the first time, their graphs, and programs: garbage hardly ever.
To look at it once more takes as long as some subnets, and workers that take turns do it one after the other. A cycle of
a user's has few objects, but may hold tensors: so many never come together, and memory tells of them.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

YOUNG = 50_000
"""New objects after which the youngest are looked at. Of a subnet of fifty layers about 670 are kept, most of them its
program's. Python has 700."""

OFTEN, SELDOM = 10, 1_000
"""Looks at the young after which those that are left are looked at."""

NONE_FOUND = 5
"""Looks in a row without garbage after which that is seldom."""

GROWN, PART = 256 << 20, 8
"""Bytes, and one of so many parts of what it had, that a process must have come to hold to look for garbage."""

WHOLE = 4
"""One of so many of these looks is at everything: what was in use at a look is old for those that follow."""


class Watch:
    """Is told of all looks, and looks where memory grows."""

    def __init__(self) -> None:
        self.empty = 0
        """Looks in a row that have found nothing."""
        self.after, self.grown = private_bytes(), 0
        """Bytes after the last look for more memory, and how many of these there were."""
        gc.set_threshold(YOUNG, OFTEN)
        gc.callbacks.append(self)

    def __call__(self, phase: str, found: Mapping[str, int]) -> None:
        if phase == "stop":
            self.empty = 0 if found["collected"] or found["uncollectable"] else self.empty + 1
            gc.set_threshold(YOUNG, OFTEN if self.empty < NONE_FOUND else SELDOM)

    def look(self) -> None:
        """If there is more memory."""
        if private_bytes() < self.after + self.after // PART + GROWN:
            return
        self.grown += 1
        if gc.collect(1 if self.grown % WHOLE else 2):
            _trim()
        self.after = private_bytes()


_watches: list[Watch] = []


def private_bytes() -> int:
    """Bytes that this process holds for itself; 0 where that is not told."""
    try:
        with open("/proc/self/statm") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except OSError:
        return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def _trim() -> None:
    """Give memory that is free back to the system: it would be filled before anybody looked again."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)


def collect_seldom() -> None:
    """From now on, in this process."""
    _watches.append(Watch())


def between_subnets() -> None:
    """Look for garbage if there is more memory than there was."""
    if _watches:
        _watches[-1].look()


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Inside."""
    before = gc.get_threshold()
    collect_seldom()
    try:
        yield
    finally:
        gc.callbacks.remove(_watches.pop())
        gc.set_threshold(*before)
