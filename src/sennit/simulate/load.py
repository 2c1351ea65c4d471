"""What is simulated: subnets as chains of runs, each on a worker, with costs.

    run 0 ──value──▶ run 1 ──value──▶ run 2           forward, `out_bytes` each way
    run 0 ◀─gradient─ run 1 ◀─gradient─ run 2         backward

A run is what a worker executes in one piece: a layer, some layers, or a whole stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Cost(NamedTuple):
    """Seconds of one micro-batch on one run.

    Attributes:
        forward: F.
        whole: B, the backward in one piece.
        input: I, the gradient of the run's input alone.
        weight: W, the gradients of its weights from what I kept. `input + weight >= whole` where splitting costs.
    """

    forward: float
    whole: float
    input: float
    weight: float


@dataclass(frozen=True, slots=True)
class Piece:
    """One run of one subnet.

    Attributes:
        worker: who executes it.
        groups: parameter groups that it reads, and whose next version its gradients make.
        cost: per micro-batch.
        out_bytes: of its output for one micro-batch; its gradient is as large.
        held_bytes: of what one micro-batch keeps from F to B (or W).
        swap_bytes: of its layers, if they come from the host's memory for each subnet and go back there.
        spread: who executes each micro-batch, if that differs; else empty.
        sources: indices of the runs whose output it reads; None for the run before.
        moves: buffer groups that its forward writes, in the order of subnets and micro-batches (`simulate/turns.py`).
        step: seconds that the step of its groups takes: its last gradient's task goes on for as long, once the gradient
            of its input has left, or it is work of its own (`sennit.schedule.before_step`).
        reach: seconds from then until all who read the new versions have them; meanwhile workers do other things.
        layers: how many a host launches one by one (`simulate/launched.py`).
    """

    worker: int
    groups: tuple[str, ...]
    cost: Cost
    out_bytes: float = 0.0
    held_bytes: float = 0.0
    swap_bytes: float = 0.0
    spread: tuple[int, ...] = ()
    sources: tuple[int, ...] | None = None
    step: float = 0.0
    reach: float = 0.0
    moves: tuple[str, ...] = ()
    layers: int = 1

    def where(self, micro_batch: int) -> int:
        """The worker that executes a micro-batch."""
        return self.spread[micro_batch] if self.spread else self.worker

    @property
    def workers(self) -> tuple[int, ...]:
        """All workers that execute some of it."""
        return tuple(dict.fromkeys(self.spread)) or (self.worker,)


class Load(Protocol):
    """A stream of subnets."""

    @property
    def workers(self) -> int: ...

    @property
    def micro_batches(self) -> int: ...

    def subnets(self) -> Iterator[Sequence[Piece]]:
        """The pieces of subnet 0, 1, 2, ... in program order."""
        ...
