"""What the simulator keeps of subnets in flight and of what is on its way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sennit.schedule.order import Task
from sennit.simulate.branches import Branches
from sennit.simulate.load import Piece
from sennit.trace.span import Cause


@dataclass(slots=True)
class Flight:
    """A subnet in flight.

    Attributes:
        closed: per run, how much it still waits for besides values: groups in their version, layers from the host.
        held: per run, micro-batches whose value has come while it is closed.
        left: per run, gradients that have not been computed.
        begun: per run that steps, gradients that have been begun, on whatever workers: the last of them steps.
        open_runs: runs that still have gradients to compute.
        branches: who waits for whom; None in a chain.
    """

    pieces: Sequence[Piece]
    closed: list[int]
    held: list[list[int]]
    left: list[int]
    begun: list[int]
    open_runs: int
    branches: Branches | None = None


class Came(NamedTuple):
    """What a task waited for last: the end of its span (`sennit.trace.span`), with the maker as a task."""

    left: float
    cause: Cause
    of: str
    by: Task | None


class Arrival(NamedTuple):
    """Something on its way: what a task waits for, or (without a micro-batch) a run's layers from the host."""

    task: Task
    came: Came


class Left(Arrival):
    """What a task makes leaves before its end."""


class Reached(Arrival):
    """The new versions of a task's run are with all who read them."""


class Steps(NamedTuple):
    """A worker steps the groups of some runs at once, each after the last of its gradients, which was there then."""

    after: list[tuple[float, Task]]
