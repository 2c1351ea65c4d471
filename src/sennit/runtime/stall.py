"""Noticing that nobody can go on: every worker at rest, and no message on its way.

    worker    nothing run, heard or written for STALL_S ──▶ "quiet", how many messages it had heard, what it awaits
              something again                           ──▶ "going"
    launcher  all quiet, and all have heard all it said ──▶ the run ends, with what each awaits

A worker that computes, loads or is stopped says nothing, so however long that takes it is no stall.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

from sennit.runtime.subnet import Subnet

if TYPE_CHECKING:
    from sennit.runtime.worker import Worker

STALL_S = 30.0
"""How long a worker must have been at rest before it says so, seconds."""

SHOWN = 3
"""How many awaited things are named."""


class Quiet:
    """How long one worker has been at rest."""

    def __init__(self) -> None:
        self.since = time.monotonic()
        self.told = self.suspected = False

    def over(self) -> bool:
        """Something happens. Returns whether a long rest had been told."""
        told, self.told, self.suspected, self.since = self.told, False, False, time.monotonic()
        return told

    def long(self) -> bool:
        """Whether the rest has become long; true once per rest, and not the first time that it is asked.

        On a machine that is busy with other things the time may have passed between two looks, without this worker. So
        it looks everywhere once more before it says so.
        """
        if self.told or time.monotonic() - self.since < STALL_S:
            return False
        suspected, self.suspected = self.suspected, True
        self.told = suspected
        return suspected


def awaited(worker: Worker) -> str:
    """What a worker's lowest unfinished subnet waits for there, in words; before that, an order that holds back what is
    ready."""
    if not worker.offered:
        return _lowest(worker)
    shown = ", ".join(sorted(map(str, worker.offered))[:SHOWN])
    more = f" and {len(worker.offered) - SHOWN} more" if len(worker.offered) > SHOWN else ""
    return f"its order, which gives none of the tasks that are ready: {shown}{more}; and for {_lowest(worker)}"


def _lowest(worker: Worker) -> str:
    if not worker.subnets:
        return f"subnet {worker.entry.next_id} to be let in" if worker.entry.next_id < worker.entry.limit else "others"
    y = min(worker.subnets)
    subnet = worker.subnets[y]
    events = {e for e in worker.ready.awaited() if y in {task.seq_id for task in worker.ready.waiting[e]}}
    words = [_words(event, subnet) for event in _sorted(events)]
    if not words:
        words = [f"gradients or norms of {group}" for group in sorted(subnet.unfinished)]
    more = f" and {len(words) - SHOWN} more" if len(words) > SHOWN else ""
    return f"subnet {y}: {'; '.join(words[:SHOWN]) or 'nothing more, and it was not put away'}{more}"


def _sorted(events: Iterable[Hashable]) -> list[tuple[object, ...]]:
    return sorted((event for event in events if isinstance(event, tuple)), key=str)


def _words(event: tuple[object, ...], subnet: Subnet) -> str:
    match event:
        case ("version", group, _, version):
            return f"{group} in the version of subnet {version}"
        case ("word", group, word):
            return f"buffers {group} after (subnet, micro-batch, use) {word}"
        case ("value", _, j, run, value):
            return f"value {value} of micro-batch {j} for run {run}"
        case ("grad", _, int(j), _, value, int(reader)):
            return f"the gradient of value {value} of micro-batch {j}, from worker {subnet.worker(reader, j)}"
        case _:
            return str(event)
