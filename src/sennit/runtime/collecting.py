"""How often Python looks for garbage while something is trained.

What belongs to a subnet lives as long as it is in flight. Much of it is there when the collector comes by, and is old
for it then, so every few dozen subnets it looked at all that is old: programs, plans and graphs of a large space. On a
busy CPU with a stand-in for graphs that took 140 ms, in which a worker launches nothing and others wait for it.

What training leaves behind is gone when nobody refers to it any more, without the collector: there are no cycles
(`tests/runtime/test_collecting.py`). So it need not come by often. Cycles of a user's own are found all the same, some
subnets later.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 50_000
"""New objects after which the youngest are looked at. Of a subnet of fifty layers about 670 are kept, most of them its
program's. Python has 700."""


def collect_seldom() -> None:
    """From now on, in this process."""
    gc.set_threshold(YOUNG)


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Inside."""
    before = gc.get_threshold()
    collect_seldom()
    try:
        yield
    finally:
        gc.set_threshold(*before)
