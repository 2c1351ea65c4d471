"""`Plan`: which worker runs which step. A pure function of the plan epoch.

A plan speaks of *blocks*: a choice block (whatever candidate is chosen there) or a step outside of choices. A
static plan cuts the list of blocks once; a file of cuts cuts it anew for every subnet. Every change of
ownership starts at a seq id (`PlanEpoch`), so that all workers agree on it without talking.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from sennit.errors import UserError, why

FORMAT = "sennit.cuts/1"


Place = Callable[[int, int, int], int]
"""Seq id, micro-batch and stretch of the network to the worker."""


class Plan(Protocol):
    """Maps steps to workers."""

    workers: int
    per_micro_batch: bool
    """Whether `worker` depends on the micro-batch."""
    static: bool
    """Whether `worker` depends on the block alone."""

    def worker(self, seq_id: int, micro_batch: int, block: str) -> int:
        """The worker that runs the steps of `block` for this subnet and micro-batch."""
        ...

    def stretch(self, seq_id: int, micro_batch: int, block: str) -> int:
        """Which stretch of the network `block` belongs to, counted in program order; each is on one worker."""
        ...

    def members(self, block: str) -> frozenset[int] | None:
        """The workers that run `block`, where these are the same for every subnet; None where they are not."""
        ...

    def tell(self, seq_id: int, steps: Sequence[tuple[str, str]]) -> None:
        """The steps of a subnet, each with its block: before anything is asked about the subnet."""
        ...

    def forget(self, below: int) -> None:
        """Nothing more will be asked about subnets below this one."""
        ...


@dataclass(frozen=True)
class PlanEpoch:
    """A plan and the first subnet it holds for."""

    starts_at_seq_id: int
    plan: Plan


class Plans:
    """The plan in force for each subnet."""

    def __init__(self, epochs: Sequence[PlanEpoch]) -> None:
        assert epochs and epochs[0].starts_at_seq_id <= 0
        self.epochs = sorted(epochs, key=lambda e: e.starts_at_seq_id)
        self.starts = [e.starts_at_seq_id for e in self.epochs]
        self.workers = max(e.plan.workers for e in self.epochs)

    @property
    def static(self) -> bool:
        """Whether every block stays with one worker for the whole run."""
        return len(self.epochs) == 1 and self.epochs[0].plan.static

    def members(self, block: str) -> frozenset[int] | None:
        """The workers that run `block`, where these are the same for the whole run."""
        return self.epochs[0].plan.members(block) if len(self.epochs) == 1 else None

    def at(self, seq_id: int) -> Plan:
        return self.epochs[bisect_right(self.starts, seq_id) - 1].plan

    def tell(self, seq_id: int, steps: Sequence[tuple[str, str]]) -> None:
        self.at(seq_id).tell(seq_id, steps)

    def forget(self, below: int) -> None:
        for epoch in self.epochs:
            epoch.plan.forget(below)

    def worker(self, seq_id: int, micro_batch: int, block: str) -> int:
        return self.at(seq_id).worker(seq_id, micro_batch, block)

    def stretch(self, seq_id: int, micro_batch: int, block: str) -> int:
        return self.at(seq_id).stretch(seq_id, micro_batch, block)

    def spread(self, seq_id: int, block: str, micro_batches: int) -> tuple[int, ...]:
        """The worker of each micro-batch of a subnet, on the stretch of `block`."""
        plan = self.at(seq_id)
        if not plan.per_micro_batch:
            return (plan.worker(seq_id, 0, block),) * micro_batches
        return tuple(plan.worker(seq_id, j, block) for j in range(micro_batches))


class CutsPlan:
    """Contiguous stretches of blocks, by cuts that may differ from subnet to subnet.

        blocks   stem  blocks.0  blocks.1  blocks.2  head
        cuts [2, 4]:   worker 0 | worker 1          | worker 2
        2 workers, 2 chunks,
        cuts [1, 2, 4]: 0  |  1  |         0        |  1       worker; the stretches are 0, 1, 2, 3

    Args:
        blocks: all blocks in program order.
        cuts: for each subnet (cyclically) the sorted positions at which the next stretch begins.
        workers: number of workers.
        chunks: stretches per worker, dealt out in turn (looped placement: Narayanan et al. 2021, section 2.2); a cut
            list has `workers * chunks - 1` entries.
        place: who has a stretch, if they are dealt out in another way.
        per_micro_batch: whether `place` looks at subnet and micro-batch.
    """

    def __init__(
        self, blocks: Sequence[str], cuts: Sequence[Sequence[int]], workers: int, chunks: int = 1,
        place: Place | None = None, per_micro_batch: bool = False,
    ) -> None:  # fmt: skip
        self.blocks = list(blocks)
        self.position = {block: i for i, block in enumerate(blocks)}
        self.cuts = [list(c) for c in cuts]
        self.workers, self.chunks, self.place = workers, chunks, place
        self.per_micro_batch = per_micro_batch
        self.static = len(self.cuts) == 1 and not per_micro_batch
        for i, c in enumerate(self.cuts):
            if len(c) != workers * chunks - 1 or c != sorted(c) or (c and not 0 <= c[0] <= c[-1] <= len(blocks)):
                who = f"{workers} workers" + (f" with {chunks} chunks each" if chunks > 1 else "")
                raise UserError(
                    f"cuts[{i}] = {c} does not fit: {who} need {workers * chunks - 1} sorted cuts between 0 and "
                    f"{len(blocks)} (number of blocks)"
                )

    def worker(self, seq_id: int, micro_batch: int, block: str) -> int:
        stretch = self.stretch(seq_id, micro_batch, block)
        return stretch % self.workers if self.place is None else self.place(seq_id, micro_batch, stretch)

    def stretch(self, seq_id: int, micro_batch: int, block: str) -> int:
        position = self.position.get(block)
        if position is None:
            raise UserError(
                f"no plan places {block!r}, which runs in none of the archs that cover the space: code around choices "
                "runs it for some combination of them only. Run it for all, or put it into a candidate (a module)"
            )
        return bisect_right(self.cuts_of(seq_id), position)

    def members(self, block: str) -> frozenset[int] | None:
        return frozenset([self.worker(0, 0, block)]) if self.static else None

    def cuts_of(self, seq_id: int) -> list[int]:
        """Where the stretches of a subnet begin."""
        return self.cuts[seq_id % len(self.cuts)]

    def tell(self, seq_id: int, steps: Sequence[tuple[str, str]]) -> None:
        """The cuts are known."""

    def forget(self, below: int) -> None:
        """They stay."""

    def to_json(self) -> str:
        held = {"format": FORMAT, "workers": self.workers, "blocks": self.blocks, "cuts": self.cuts}
        return json.dumps(held if self.chunks == 1 else {**held, "chunks": self.chunks})


def load_cuts(path: Path, blocks: Sequence[str], workers: int) -> CutsPlan:
    """Read a file of cuts: `{"format": "sennit.cuts/1", "cuts": [[2, 4], [1, 4], ...]}`.

    Raises:
        UserError: unreadable, another format, cuts that do not fit, or made for other blocks.
    """
    try:
        held: Any = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read the plan {path}: {why(error)}") from error
    table = cast("dict[str, Any]", held) if isinstance(held, dict) else {}
    if table.get("format") != FORMAT or not table.get("cuts"):
        seen = f"keys {', '.join(map(repr, table))}, format {table.get('format')!r:.80}" if table else f"{held!r:.80}"
        raise UserError(
            f'the plan {path} must be a profile, or JSON with "format": "{FORMAT}" and a non-empty list "cuts"; it '
            f"has {seen}"
        )
    named: Any = table.get("blocks")
    if named is not None and not isinstance(named, list):
        raise UserError(f"{path}: blocks must be a list of names, got {named!r:.80}")
    named = cast("list[str] | None", named)
    if named is not None and list(named) != list(blocks):
        raise UserError(
            f"the plan {path} was made for {len(named)} blocks, the space has {len(blocks)}: {blocks[:8]}..."
        )
    cuts: Any = table["cuts"]
    if not _rows_of_integers(cuts):
        raise UserError(f"{path}: cuts must be a list of lists of integers, got {cuts!r:.80}")
    chunks: Any = table.get("chunks", 1)
    if type(chunks) is not int or chunks < 1:
        raise UserError(f"{path}: chunks must be a number of at least 1, got {chunks!r:.80}")
    try:
        return CutsPlan(blocks, cuts, workers, chunks)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _rows_of_integers(cuts: Any) -> bool:
    if not isinstance(cuts, list):
        return False
    rows = cast("list[Any]", cuts)
    return all(isinstance(row, list) and {type(n) for n in cast("list[Any]", row)} <= {int} for row in rows)
