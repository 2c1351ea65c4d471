"""How often Python looks for garbage while something is trained.

What belongs to a subnet lives as long as it is in flight. Much of it is there when the collector comes by, and is old
for it then, so every few dozen subnets it looked at all that is old: programs, plans and graphs of a large space. On a
busy CPU with a stand-in for graphs that took 140 ms, in which a worker launches nothing and others wait for it.

What training leaves behind is gone when nobody refers to it any more, without the collector: there are no cycles
(`tests/runtime/test_collecting.py`). So it need not come by often. Cycles of a user's own are found all the same, some
subnets later.

    young   50,000 new objects ─▶ looked at ─┐ those that are left, of so many looks ─▶ looked at once more
                                             └ 10 if garbage was found lately, else 1,000

What is left of the young is layers that were used for the first time, their graphs, and programs: garbage hardly ever.
To look at it once more takes as long as some subnets, and workers that take turns do it one after the other.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

YOUNG = 50_000
"""New objects after which the youngest are looked at. Of a subnet of fifty layers about 670 are kept, most of them its
program's. Python has 700."""

OFTEN, SELDOM = 10, 1_000
"""Looks at the young after which those that are left are looked at."""

NONE_FOUND = 5
"""Looks in a row without garbage after which that is seldom."""


class Watch:
    """Is told of all looks."""

    def __init__(self) -> None:
        self.empty = 0
        """Looks in a row that have found nothing."""
        gc.set_threshold(YOUNG, OFTEN)
        gc.callbacks.append(self)

    def __call__(self, phase: str, found: Mapping[str, int]) -> None:
        if phase == "stop":
            self.empty = 0 if found["collected"] or found["uncollectable"] else self.empty + 1
            gc.set_threshold(YOUNG, OFTEN if self.empty < NONE_FOUND else SELDOM)


def collect_seldom() -> Watch:
    """From now on, in this process."""
    return Watch()


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Inside."""
    before = gc.get_threshold()
    watch = collect_seldom()
    try:
        yield
    finally:
        gc.callbacks.remove(watch)
        gc.set_threshold(*before)
