"""What to say of a simulation in which no order gives a task although some are ready."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sennit.schedule.order import Task
from sennit.simulate.flight import Flight


def standing_still(flights: Mapping[int, Flight], offered: Iterable[Task]) -> str:
    """Who could go on and does not.

    Args:
        flights: subnets in flight, by number.
        offered: ready tasks that no order has given back.
    """
    have: dict[int, list[Task]] = {}
    for task in sorted(offered, key=lambda task: task[1:]):
        worker = flights[task.seq_id].pieces[task.run].where(task.micro_batch)
        have.setdefault(worker, []).append(task)
    every = {worker for flight in flights.values() for piece in flight.pieces for worker in piece.workers}
    told = [f"worker {k}: {', '.join(map(str, have.get(k, ())[:4])) or 'none'}" for k in sorted(every)[:8]]
    return (
        f"the schedule stands still: subnets {sorted(flights)[:5]} are not done, and no order gives a task. "
        f"Ready tasks: {'; '.join(told)}. An order must give every task that it was told of sooner or later, and a "
        "list must not put a task before one that it waits for"
    )
