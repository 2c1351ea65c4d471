"""`Span`: one task in time, and what it waited for. Simulator and workers make the same spans.

    previous task ──end          left        ready   start        end
                      |  waited   |  link      | late |   task     |
                                  whoever made what came last was done

A task may have waited for several things; the one that came last is named.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Cause = Literal["start", "value", "gradient", "weight", "version", "buffer", "admitted", "cut", "order"]
"""What came last.

    start      nothing: it was ready when its subnet came, and that came with the run
    value      output of an earlier run of steps
    gradient   gradient of its output, or of the loss
    weight     its own input gradient (W tasks)
    version    a group in the version that it reads
    buffer     its turn on a buffer that forwards write
    admitted   its subnet was let in: another one had to end before, or to be drawn
    cut        its subnet was let in after a cut, at which all workers end what they have (checkpoints, evaluations)
    order      nothing: the order gave its worker other tasks to wait for
"""


class Span(NamedTuple):
    """One task.

    Attributes:
        worker: who ran it.
        kind: F, B, I or W; U for optimizer steps outside of a task, when the last gradients or norms came from others.
        seq_id, micro_batch, run: of the task; micro-batch and run are -1 for U.
        start, end: seconds since the trace began.
        ready: when the last thing that it waited for was there.
        left: when that was made; `ready - left` is the time on the way.
        cause: what that was.
        of: the group or value, if it has a name.
        by: the task that made it, as `str(Task)` ("3F17.0": run 3, forward, subnet 17, micro-batch 0); else empty.
        launched, host: on a GPU, when the host began to launch it, and how many seconds that took; else 0. Where
            `launched + host` is not well before `end`, the device has waited for launches.
        waited: of `host`, seconds in which it launched nothing: a backward waits for the loss to be told.
    """

    worker: int
    kind: str
    seq_id: int
    micro_batch: int
    run: int
    start: float
    end: float
    ready: float = 0.0
    left: float = 0.0
    cause: Cause = "start"
    of: str = ""
    by: str = ""
    launched: float = 0.0
    host: float = 0.0
    waited: float = 0.0
