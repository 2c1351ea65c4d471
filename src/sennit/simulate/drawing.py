"""`draw`: what workers did, as text, one row a worker and one cell a time slot.

    worker 0  0F0 0F1  .  0B0  .  0B1
    worker 1   .  1F0 1B0 1F1 1B1  .

A cell says run, kind and micro-batch, and with several subnets `run kind subnet.micro-batch`. A task that takes several
slots fills them all.
"""

from __future__ import annotations

from collections.abc import Iterable

from sennit.schedule.order import Task

Span = tuple[float, float, int, Task]
"""Start, end, worker, task."""


def draw(spans: Iterable[Span], slot: float = 1.0) -> str:
    """The spans as text.

    Args:
        slot: seconds of a cell. Starts and ends must be multiples of it.
    """
    held = list(spans)
    several = len({task.seq_id for _, _, _, task in held}) > 1
    slots = round(max(end for _, end, _, _ in held) / slot)
    rows = [["."] * slots for _ in range(1 + max(worker for _, _, worker, _ in held))]
    for begin, end, worker, task in held:
        first, last = round(begin / slot), round(end / slot)
        assert abs(first * slot - begin) < 1e-6 * slot and last > first, f"{task} does not start on a slot"
        name = str(task) if several else f"{task.run}{task.kind}{task.micro_batch}"
        for i in range(first, last):
            assert rows[worker][i] == ".", f"{task} meets {rows[worker][i]} on worker {worker}"
            rows[worker][i] = name
    width = max(len(cell) for row in rows for cell in row)
    lines = [f"worker {k}  {' '.join(cell.center(width) for cell in row)}".rstrip() for k, row in enumerate(rows)]
    return "\n".join(lines)
