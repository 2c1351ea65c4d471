"""What goes before optimizer steps, where these are work of their own.

    gradients of a run complete ──▶ a backward of this subnet or an earlier one ready here? ──yes──▶ that first
                                                       │ no
                                                       ▼
                                              all steps that are due here

    worker 0  0F0 0F1 2F0 2F1  .  2B0 2B0 2B1 2B1  U   U  0B0 0B1  U   U
    worker 1   .  1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B0 1B1 1B1  U   U   U   U

Worker 0 waits for 1B0. The step of run 3, whose gradients are complete before it, would make it wait longer, and nobody
waits for that step before the next subnet.
"""

from __future__ import annotations

from collections.abc import Iterable

from sennit.schedule.order import Task


def before_step(ready: Iterable[Task], seq_id: int) -> bool:
    """Whether one of these tasks goes before a step of subnet `seq_id`, all on one worker.

    Gradients of an earlier subnet, or of the same, hold up more than a version that this subnet makes. There are never
    more than a subnet has, so a step is not put off for ever.
    """
    return any(task.kind in "BI" and task.seq_id <= seq_id for task in ready)
