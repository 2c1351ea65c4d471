"""`Subnet`: what one worker knows of one subnet in flight."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sennit.plan.stepper import stepper
from sennit.program.cut import Run, cut
from sennit.program.groups import Groups
from sennit.program.step import Program
from sennit.runtime.bulks import Bulks
from sennit.supernet.sync import Sync

Word = tuple[int, int, int]
"""Version of a buffer group: (seq id, micro-batch, use); (-1, -1, -1) at first."""

UNWRITTEN: Word = (-1, -1, -1)

NO_NUMBERS: Mapping[str, int] = {}


class BufferOrder:
    """Which word a forward must find in a buffer group: buffers move in (seq id, micro-batch, use) order."""

    def __init__(self) -> None:
        self.last: dict[str, Word] = {}

    def start(self, words: dict[str, Word]) -> None:
        self.last = dict(words)

    def observe(self, seq_id: int, uses: dict[str, int], micro_batches: int) -> dict[str, Word]:
        """Subnet `seq_id` writes each group `uses[group]` times per micro-batch. Returns the words before it."""
        before = {group: self.last.get(group, UNWRITTEN) for group in uses}
        for group, n in uses.items():
            self.last[group] = (seq_id, micro_batches - 1, n - 1)
        return before


@dataclass
class Subnet:
    """One subnet in flight, as cut by the plan.

    Attributes:
        runs: all runs of its program.
        spread: of each run, the worker of each micro-batch.
        own: runs and micro-batches of this worker.
        read_by_run: parameter groups that each run reads, in step order.
        moved_by_run: `(group, index of use)` of buffer groups that each run writes, in step order.
        owner: worker that folds and steps each parameter group: one that runs its first step (`plan/stepper.py`).
        trained_by: the same, of those that train.
        first_step: name of the first step that reads each parameter group.
        users: how many runs use each parameter group.
        before: word of each buffer group before this subnet.
        uses: how often a micro-batch writes each buffer group.
        left: tasks of this worker that have not run.
        unfinished: parameter groups whose gradients this worker still has to fold (and, but for bulks, to step).
        to_step: groups of a bulk that this worker steps; held by the last subnet of the bulk.
        losses: of the micro-batches whose loss this worker has computed.
        counts: terms of the loss of each micro-batch, once they are known.
        norms: how many parameters have a norm, once that has been asked.
    """

    seq_id: int
    arch: dict[str, Any]
    program: Program
    runs: tuple[Run, ...]
    spread: tuple[tuple[int, ...], ...]
    own: tuple[tuple[Run, int], ...]
    read_by_run: dict[int, tuple[str, ...]]
    moved_by_run: dict[int, tuple[tuple[str, int], ...]]
    owner: dict[str, int]
    first_step: dict[str, str]
    users: dict[str, int]
    before: dict[str, Word]
    uses: dict[str, int]
    left: int = 0
    unfinished: set[str] = field(default_factory=set)
    to_step: set[str] = field(default_factory=set)
    losses: dict[int, float] = field(default_factory=dict)
    counts: list[int] | None = None
    trained_by: dict[str, int] = field(default_factory=dict)
    norms: int | None = None

    def worker(self, run: int, micro_batch: int) -> int:
        """Who executes a micro-batch on a run."""
        return self.spread[run][micro_batch]

    @cached_property
    def first_read(self) -> dict[str, int]:
        """How early in the program each parameter group is read first, as numbers to compare."""
        return {group: i for i, group in enumerate(self.owner)}

    @property
    def workers(self) -> frozenset[int]:
        """All that execute some of it."""
        return frozenset(worker for spread in self.spread for worker in spread)

    @property
    def all_losses(self) -> bool:
        """Whether every loss that this worker computes is there."""
        return len(self.losses) == sum(run.has_loss for run, _ in self.own)

    def first_moves(self, run: Run) -> list[tuple[str, int]]:
        """`(buffer group, index of use)` of the first use of each group in a run; later ones follow inside it."""
        first: dict[str, int] = {}
        for group, use in self.moved_by_run[run.index]:
            first.setdefault(group, use)
        return list(first.items())

    def last_moves(self, run: Run) -> list[tuple[str, int]]:
        """The same for the last use."""
        return list(dict(self.moved_by_run[run.index]).items())

    def word_before(self, group: str, micro_batch: int, use: int) -> Word:
        """The word that a use of a buffer group must find."""
        if use:
            return (self.seq_id, micro_batch, use - 1)
        if micro_batch:
            return (self.seq_id, micro_batch - 1, self.uses[group] - 1)
        return self.before[group]

    @property
    def done(self) -> bool:
        return not self.left and not self.unfinished and not self.to_step


def parts_of(program: Program, groups: Groups, stretch_of: Callable[[str], int], *, per_layer: bool) -> list[int]:
    """A number for each step, another one where a new run must begin.

    Args:
        stretch_of: the plan, from block to stretch of the network.
        per_layer: a new part wherever a block with parameters begins, so that its version is there as soon as its own
            gradients are. Steps without parameters go with those before them.
    """
    parts: list[int] = []
    block, stretch = "", -1
    for step in program.steps:
        now = stretch_of(step.block)
        layer = per_layer and step.block != block and bool(groups.of_step(step)[0])
        parts.append((parts[-1] if parts else -1) + (now != stretch or layer))
        stretch, block = now, step.block if layer or now != stretch or not per_layer else block
    return parts


def make_subnet(
    seq_id: int, program: Program, groups: Groups, kept: frozenset[str], sync: Sync, order: BufferOrder,
    spread_of: Callable[[str], tuple[int, ...]], parts: Sequence[int], rank: int, micro_batches: int,
    bulks: Bulks | None = None, split: bool = False, numbers: Mapping[str, int] = NO_NUMBERS,
) -> Subnet:  # fmt: skip
    """Cut a program, note what its runs read and write, and tell `sync`, `order` and `bulks` about it.

    Args:
        kept: groups that do not train (`shared = "frozen"`).
        spread_of: the plan, from block to the worker of each micro-batch.
        parts: of each step; see `cut`.
        split: the backward is two tasks.
        numbers: of parameter groups, by which workers that share a run take turns at stepping them.
    """
    runs = cut(program, parts)
    spread = tuple(spread_of(run.steps[0].block) for run in runs)
    read_by_run: dict[int, tuple[str, ...]] = {}
    moved_by_run: dict[int, tuple[tuple[str, int], ...]] = {}
    owner: dict[str, int] = {}
    first_step: dict[str, str] = {}
    users: dict[str, int] = {}
    uses: dict[str, int] = {}
    for run in runs:
        read: dict[str, None] = {}
        moved: list[tuple[str, int]] = []
        for step in run.steps:
            r, w = groups.of_step(step)
            for group in r:
                owner.setdefault(group, stepper(spread[run.index], numbers.get(group, 0)))
                first_step.setdefault(group, step.name)
                read[group] = None
            for group in w:
                if group not in kept:
                    moved.append((group, uses.get(group, 0)))
                    uses[group] = uses.get(group, 0) + 1
        for group in read:
            users[group] = users.get(group, 0) + 1
        read_by_run[run.index] = tuple(read)
        moved_by_run[run.index] = tuple(moved)
    trained = [group for group in owner if group not in kept]
    if bulks is not None:
        owner.update(bulks.observe(seq_id, {group: owner[group] for group in trained}))
    sync.observe(seq_id, owner)
    before = order.observe(seq_id, uses, micro_batches)
    own = tuple((run, j) for run in runs for j in range(micro_batches) if spread[run.index][j] == rank)
    return Subnet(
        seq_id, program.arch, program, runs, spread, own, read_by_run, moved_by_run, owner, first_step, users, before,
        uses, left=(3 if split else 2) * len(own), unfinished={g for g in trained if owner[g] == rank},
        trained_by={group: owner[group] for group in trained},
    )  # fmt: skip
