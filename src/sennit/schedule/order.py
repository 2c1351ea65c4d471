"""`Order`: which of the ready tasks a worker runs next. The same object drives simulator and workers."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from sennit.schedule.action import Kind


class Task(NamedTuple):
    """Part of the work on one micro-batch of one subnet on one run of steps.

    Attributes:
        kind: F forward, B whole backward, I input gradient, W weight gradient.
        run: index among the runs of the subnet.
    """

    kind: Kind
    seq_id: int
    micro_batch: int
    run: int

    def __str__(self) -> str:
        return f"{self.run}{self.kind}{self.seq_id}.{self.micro_batch}"


class Order(Protocol):
    """The order of one worker."""

    def add(self, task: Task) -> None:
        """A task has become ready. In the simulator a forward comes again if there was no memory for it."""
        ...

    def pop(self) -> Task | None:
        """The task to run now, or None to wait."""
        ...


def is_fixed(order: Order) -> bool:
    """Whether an order is a list, which waits for its next task and takes none back; it says so by `fixed = True`."""
    return bool(getattr(order, "fixed", False))


def not_ready(worker: int, task: Task) -> str:
    """What to say of an order that gives a task that it may not."""
    return (
        f"the order of worker {worker} gave {task}, which is not ready, or has been given before; pop() must give a "
        "task that add() has told of, once"
    )
