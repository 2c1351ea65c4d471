"""`draw`: what workers did, as text, one row a worker and one cell a time slot.

    worker 0  0F0 0F1  .  0B0  .  0B1
    worker 1   .  1F0 1B0 1F1 1B1  .

A cell says run, kind and micro-batch, and with several subnets `run kind subnet.micro-batch`. A task that takes several
slots fills them all. Steps outside of tasks are `U`, with several subnets `U subnet`.
"""

from __future__ import annotations

from collections.abc import Iterable

from sennit.trace.span import Span


def draw(spans: Iterable[Span], slot: float = 1.0) -> str:
    """The spans as text.

    Args:
        slot: seconds of a cell. Starts and ends must be multiples of it.
    """
    held = list(spans)
    several = len({span.seq_id for span in held}) > 1
    slots = round(max(span.end for span in held) / slot)
    rows = [["."] * slots for _ in range(1 + max(span.worker for span in held))]
    for span in held:
        first, last = round(span.start / slot), round(span.end / slot)
        subnet = f"{span.seq_id}." if several else ""
        name = f"{span.run}{span.kind}{subnet}{span.micro_batch}" if span.kind != "U" else f"U{subnet.rstrip('.')}"
        assert abs(first * slot - span.start) < 1e-6 * slot and last > first, f"{name} does not start on a slot"
        row = rows[span.worker]
        for i in range(first, last):
            assert row[i] == ".", f"{name} meets {row[i]} on worker {span.worker}"
            row[i] = name
    width = max(len(cell) for row in rows for cell in row)
    lines = [f"worker {k}  {' '.join(cell.center(width) for cell in row)}".rstrip() for k, row in enumerate(rows)]
    return "\n".join(lines)
