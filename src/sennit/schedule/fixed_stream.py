"""`FixedStream`: 1F1B without end, PipeDream's order for asynchronous training (SOSP'19, section 3.2).

    2 workers, ahead = 2 and 1
    worker 0   F0 F1  . B0 F2 B1 F3 B2 ...      so many forwards ahead, then one backward for each forward
    worker 1    . F0 B0 F1 B1 F2 B2 F3 ...

A worker waits for the task whose turn it is, whatever else is ready. Under asynchronous rules that makes the result a
function of the number of workers: which version a forward reads is fixed by how many backwards came before it. Where
the stream is cut (a checkpoint, the end), no forward is left, and the backwards follow one another.
"""

from __future__ import annotations

from collections.abc import Callable

from sennit.schedule.order import Task


class FixedStream:
    """The order of one worker, which has one run of every subnet.

    Args:
        ahead: most forwards whose backward has not run; worker k of D: D - k.
        micro_batches: M of each subnet.
        start: the first subnet.
        end: the first subnet that does not come, as far as is known now; may grow once all before it are done.
    """

    fixed = True

    def __init__(self, ahead: int, micro_batches: int, start: int, end: Callable[[], float]) -> None:
        assert ahead >= 1
        self.ahead, self.m, self.start, self.end = ahead, micro_batches, start, end
        self.ready: dict[tuple[str, int, int], Task] = {}
        self.forwards = self.backwards = 0
        """How many have run."""

    def add(self, task: Task) -> None:
        assert task.kind in "FB", f"{task}: a stream of whole backwards"
        self.ready[task.kind, task.seq_id, task.micro_batch] = task

    def pop(self) -> Task | None:
        open_, y = self.forwards - self.backwards, self.start + self.forwards // self.m
        if open_ < self.ahead and y < self.end():
            task = self.ready.pop(("F", y, self.forwards % self.m), None)
            self.forwards += task is not None
            return task
        task = self.ready.pop(("B", self.start + self.backwards // self.m, self.backwards % self.m), None)
        self.backwards += task is not None
        return task
