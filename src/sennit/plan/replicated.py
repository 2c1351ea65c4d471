"""`Replicated`: stages of several workers each, which take different micro-batches of one subnet.

    workers 0 .. 5: depth 3, 2 replicas; 4 micro-batches of subnet 0

    stage 0     worker 0:  0   2          worker 1:  1   3
    stage 1     worker 2:  0   2          worker 3:  1   3        micro-batch j is on replica j mod 2
    stage 2     worker 4:  0   2          worker 5:  1   3

Micro-batches are dealt out in turn and not in contiguous halves. Both fill the pipeline as fast, but in turn they
arrive everywhere in the order in which gradients are folded and buffers are written, so nothing waits for its turn:
with halves micro-batch 2 is there before 1, and its gradient is kept, and its forward held up, until 1 has come.

The next subnet begins where this one ended, or one replica on if that were always the same one. Who steps the weights
does not depend on it (`sennit.plan.stepper`).

Blocks whose forward writes buffers (batch norm) are not replicated, since micro-batches pass them one after the other
anyway: each is on one of the stage's workers. Where several stand in a row, they are cut into as many stretches as
there are replicas, as one cuts a pipeline.

    blocks      a  b  N  c  N  N        N writes buffers
    replica     *  *  0  *  1  0        *: by micro-batch
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby, pairwise

from sennit.errors import UserError
from sennit.plan.balance import balanced_cuts
from sennit.plan.plan import CutsPlan

EVERY = -1
"""In place of a replica: each, by micro-batch."""

KEPT = 64
"""Lists of cuts that are looked at once: those of subnets in flight, and more."""


def replica_of(seq_id: int, micro_batch: int, micro_batches: int, replicas: int) -> int:
    """Which replica takes a micro-batch."""
    onward = micro_batches if micro_batches % replicas else 1
    return (seq_id * onward + micro_batch) % replicas


def depth_of(workers: int, replicas: int) -> int:
    """Stages of so many workers.

    Raises:
        UserError: they do not come out even.
    """
    if replicas < 1:
        raise UserError(f"--replicas must be at least 1, got {replicas}")
    if workers % replicas:
        fits = [str(r) for r in range(1, workers + 1) if not workers % r]
        raise UserError(
            f"--replicas {replicas}: every stage has as many workers, so --workers must be a multiple of it, got "
            f"{workers}; use --replicas {' or '.join(fits)}, or --workers {(workers // replicas + 1) * replicas}"
        )
    return workers // replicas


def spare_words(replicas: int, micro_batches: int) -> str:
    """What to say of more replicas than one subnet can use; nothing if there are none."""
    if replicas <= max(1, micro_batches):
        return ""
    fits = f"--replicas {micro_batches}" if micro_batches > 1 else "no --replicas"
    return (
        f"--replicas {replicas}: a subnet has {micro_batches} micro-batch{'es' * (micro_batches > 1)}, so of the "
        f"{replicas} workers of a stage it keeps {micro_batches} busy, and the others have only other subnets to wait "
        f"for; use {fits}, or as many micro-batches, which makes it another recipe"
    )


class Replicated:
    """A plan whose stages have `replicas` workers each: stage s has workers s × replicas and so on.

    Args:
        stages: which stage has which block; its workers are the stages' numbers.
        micro_batches: M.
        single: blocks that stay on one worker.
        costs: of each block, by which a row of such blocks is cut; None for equal ones.
    """

    per_micro_batch = True
    static = False

    def __init__(
        self, stages: CutsPlan, replicas: int, micro_batches: int, single: Collection[str] = (),
        costs: Sequence[float] | None = None,
    ) -> None:  # fmt: skip
        assert not stages.per_micro_batch
        self.stages, self.replicas, self.micro_batches = stages, replicas, micro_batches
        self.single = [block in single for block in stages.blocks]
        self.costs = list(costs) if costs is not None else [1.0] * len(stages.blocks)
        self.workers = stages.workers * replicas
        self.known: dict[tuple[int, ...], list[tuple[int, int]]] = {}

    def worker(self, seq_id: int, micro_batch: int, block: str) -> int:
        stage, replica = self.stages.worker(seq_id, 0, block), self.placed(seq_id, block)[1]
        if replica == EVERY:
            replica = replica_of(seq_id, micro_batch, self.micro_batches, self.replicas)
        return stage * self.replicas + replica

    def stretch(self, seq_id: int, micro_batch: int, block: str) -> int:
        return self.placed(seq_id, block)[0]

    def members(self, block: str) -> frozenset[int] | None:
        stage = self.stages.members(block)
        if stage is None:
            return None
        replica = self.placed(0, block)[1]
        if replica == EVERY and self.micro_batches < self.replicas:
            return None
        first = min(stage) * self.replicas
        return frozenset(range(first, first + self.replicas) if replica == EVERY else [first + replica])

    def placed(self, seq_id: int, block: str) -> tuple[int, int]:
        """The stretch of a block, and its replica or `EVERY`."""
        self.stages.stretch(seq_id, 0, block)  # refuses a block that the plan does not have
        cuts = tuple(self.stages.cuts_of(seq_id))
        found = self.known.get(cuts)
        if found is None:
            found = self.known[cuts] = self.stretches(cuts)
            if len(self.known) > KEPT:
                del self.known[next(iter(self.known))]
        return found[self.stages.position[block]]

    def stretches(self, cuts: Sequence[int]) -> list[tuple[int, int]]:
        """For each block its stretch and its replica: stages, cut again where blocks are single."""
        found: list[tuple[int, int]] = []
        number, turn = 0, 0
        for begin, end in pairwise([0, *cuts, len(self.single)]):
            for single, held in groupby(range(begin, end), key=self.single.__getitem__):
                row = list(held)
                if not single:
                    found += [(number, EVERY)] * len(row)
                    number += 1
                    continue
                parts = balanced_cuts([self.costs[i] for i in row], min(self.replicas, len(row)))
                for a, b in pairwise([0, *parts, len(row)]):
                    found += [(number, turn % self.replicas)] * (b - a)
                    number, turn = number + 1, turn + 1
        return found

    def tell(self, seq_id: int, steps: Sequence[tuple[str, str]]) -> None:
        self.stages.tell(seq_id, steps)

    def forget(self, below: int) -> None:
        self.stages.forget(below)
