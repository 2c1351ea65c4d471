"""`one_machine`: how long one machine needs at least for jobs with heads and tails.

    |-- head --|== work ==|---- tail ----|         work may be interrupted; tails run side by side

Among the jobs whose head is over, the one with the longest tail is worked on; the largest end of work + tail is the
shortest possible (Jackson's preemptive schedule; Carlier 1982). With whole tasks, and with all other machines to wait
for, it can only be longer, so this is a bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

Job = tuple[float, float, float]
"""Head, work, tail, seconds."""


def one_machine(jobs: Iterable[Job]) -> float:
    """The shortest makespan of jobs on one machine, with interruptions. 0 for none."""
    coming = sorted(jobs, reverse=True)
    ready: list[tuple[float, float]] = []
    now = longest = 0.0
    while coming or ready:
        if not ready:
            now = max(now, coming[-1][0])
        while coming and coming[-1][0] <= now:
            _, work, tail = coming.pop()
            heappush(ready, (-tail, work))
        tail, work = heappop(ready)
        free = coming[-1][0] - now if coming else work
        if work <= free:
            now += work
            longest = max(longest, now - tail)
        else:
            now += free
            heappush(ready, (tail, work - free))
    return longest
