"""`SpaceLoad`: a stream of subnets of a space that is its choice blocks alone, all of equal cost.

    nlp.c1   48 blocks of 72 candidates      a subnet picks one candidate per block; whoever picks the same waits

    layers   0 1 2 3 | 4 5 6 7 | 8 9 10 11 | 12 13 14 15      16 layers in 4 stages
    runs     0 1 2 3   4 5 6 7   8 9 10 11   12 13 14 15      by layer
             0 . 1 .   2 . 3 .   4 . 5 .     6 . 7 .          by layer, 2 joined
             0 . . .   1 . . .   2 . . .     3 . . .          by stage

The unit of time is the forward of a whole batch through the layers of one worker. I and W take one unit each, B two
(splitting is free here), so a perfect pipeline takes three units a subnet, whatever the space. A cluster's seconds are
these units. Bytes are those of one layer and a whole batch; a micro-batch has 1/M of the activations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Literal

from sennit.errors import UserError
from sennit.plan.plan import Place
from sennit.plan.replicated import depth_of, replica_of
from sennit.schedule.policy import Release
from sennit.simulate.load import Cost, Piece
from sennit.supernet.keys import key_for, numpy_generator

SIZES: dict[str, tuple[int, int]] = {
    "nlp.c0": (48, 96), "nlp.c1": (48, 72), "nlp.c2": (48, 48), "nlp.c3": (48, 24),
    "cv.c1": (32, 48), "cv.c2": (32, 24), "cv.c3": (32, 12),
}  # fmt: skip
"""Name to choice blocks and candidates per block (NASPipe, Table 1)."""


MOST_BLOCKS = 100_000
MOST_CANDIDATES = 10**9
"""Of a space: it would take for ever."""

MOST_ORDERED = 10**7
"""Candidates in all blocks together whose order a fair sampler can hold."""

MOST_BYTES = 1e18
"""Of a layer, an exabyte: products with times stay finite."""

OPTIONS: dict[str, str] = {
    "blocks": "blocks of --space", "candidates": "candidates of --space", "workers": "--workers", "micro_batches": "-M",
    "subnets_wanted": "--subnets", "chunks": "--chunks", "joined": "--joined", "out_bytes": "--out-bytes",
    "held_bytes": "--held-bytes", "swap_bytes": "--swap-bytes", "replicas": "--replicas",
}  # fmt: skip
"""Attribute to what is typed for it."""


def space_size(name: str) -> tuple[int, int]:
    """Blocks and candidates per block of a space by its name, or of `64x24`.

    Raises:
        UserError: neither.
    """
    if name in SIZES:
        return SIZES[name]
    blocks, _, candidates = name.partition("x")
    sizes = [int(size[:30]) if size.isdecimal() else 0 for size in (blocks, candidates)]  # no more digits matter
    if not all(sizes):
        raise UserError(f"--space {name!r:.80} is none of {', '.join(SIZES)}, nor blocks x candidates such as 64x24")
    return sizes[0], sizes[1]


def even_sizes(blocks: int, workers: int, chunks: int) -> tuple[int, ...]:
    """Layers of each stage, as even as they can be, first for the workers and then for the stages.

        48 layers, 8 workers, 4 chunks     1 2 1 2 ... | 2 1 2 1 ... | 1 2 1 2 ... | 2 1 2 1 ...

    Cut into 32 like stages, every second worker would have twice the work of its neighbour.
    """
    n = workers * chunks
    sizes = [-(-(s + 1) * blocks // n) + (-s * blocks // n) for s in range(n)]
    totals = [sum(sizes[k::workers]) for k in range(workers)]
    if max(totals) - min(totals) <= 1:
        return tuple(sizes)
    totals = [(k + 1) * blocks // workers - k * blocks // workers for k in range(workers)]

    def before(chunk: int, k: int) -> int:
        """Layers of a worker before a chunk; every second worker is half a layer ahead."""
        return (2 * chunk * totals[k] // chunks + k % 2) // 2

    return tuple(before(chunk + 1, k) - before(chunk, k) for chunk in range(chunks) for k in range(workers))


@dataclass(frozen=True, kw_only=True)
class SpaceLoad:
    """A stream of subnets of such a space.

    Attributes:
        blocks, candidates: of the space.
        subnets_wanted: length of the stream.
        sampler: uniform, or fair: every round of n subnets uses each candidate of a block once.
        pinned: the first and the last block have one candidate only, shared by all.
        replicas: workers of each stage (`plan/replicated.py`), of `workers` in all.
        chunks: how often each worker gets a stretch of the network in turn.
        sizes: layers of each stage; none for equal ones.
        release: layer: every layer is a run of its own, and its version is there once its gradients are; stage: all
            layers of a chunk are one run.
        joined: by layer, how many neighbours make one run.
        place: who has a stage, if not the workers in turn.
        spread: whether `place` looks at the micro-batch.
        out_bytes: of a layer's output.
        held_bytes: what a layer keeps from forward to backward.
        swap_bytes: of a layer's weights, if they are fetched from the host for every subnet.
    """

    blocks: int
    candidates: int
    workers: int
    micro_batches: int
    subnets_wanted: int
    sampler: Literal["uniform", "fair"] = "uniform"
    pinned: bool = False
    replicas: int = 1
    chunks: int = 1
    sizes: tuple[int, ...] = ()
    release: Release = "layer"
    joined: int = 1
    place: Place | None = None
    spread: bool = False
    out_bytes: float = 0.0
    held_bytes: float = 0.0
    swap_bytes: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in (
            "blocks",
            "candidates",
            "workers",
            "replicas",
            "micro_batches",
            "subnets_wanted",
            "chunks",
            "joined",
        ):
            if getattr(self, name) < 1:
                raise UserError(f"{OPTIONS[name]} must be at least 1, got {getattr(self, name)}")
        for name, most in (("blocks", MOST_BLOCKS), ("candidates", MOST_CANDIDATES)):
            if getattr(self, name) > most:
                raise UserError(f"{OPTIONS[name]} must be at most {most:,}, got {getattr(self, name):,}")
        for name in ("out_bytes", "held_bytes", "swap_bytes"):
            if not 0 <= getattr(self, name) <= MOST_BYTES:
                raise UserError(
                    f"{OPTIONS[name]} must be at least 0 and at most {MOST_BYTES:g}, got {getattr(self, name):g}"
                )
        self.depth  # noqa: B018 - refuses what does not come out even
        if not self.sizes and self.depth * self.chunks > self.blocks:
            most = self.blocks // self.chunks * self.replicas
            fewer = [
                f"at most {fit} {what}{'s' * (fit > 1)}"
                for what, fit in (("chunk", self.blocks // self.depth), ("worker", most))
                if fit
            ]
            stages = f"{self.depth} stages of {self.replicas}" if self.replicas > 1 else f"{self.workers}"
            raise UserError(
                f"{stages} workers x {self.chunks} chunks need as many layers, the space has {self.blocks}; use "
                f"{' or '.join(fewer) or f'at most {self.blocks} workers with 1 chunk'}"
            )
        if self.sizes and (min(self.sizes) < 1 or sum(self.sizes) != self.blocks):
            raise UserError(f"--sizes {self.sizes} sum to {sum(self.sizes)}, the space has {self.blocks} layers")
        if self.sampler == "fair" and not self.can_be_fair:
            raise UserError(
                f"--sampler fair keeps an order of all candidates, {self.blocks} x {self.candidates} here; at most "
                f"{MOST_ORDERED:,} in all. Use --sampler uniform, or a smaller --space"
            )

    @cached_property
    def depth(self) -> int:
        """Stages of a chunk."""
        return depth_of(self.workers, self.replicas)

    @property
    def can_be_fair(self) -> bool:
        """Whether the orders of all blocks' candidates can be held."""
        return self.blocks * self.candidates <= MOST_ORDERED

    @cached_property
    def stages(self) -> list[list[int]]:
        """Layers of each stage."""
        sizes = self.sizes or even_sizes(self.blocks, self.depth, self.chunks)
        return [list(range(end - size, end)) for size, end in zip(sizes, accumulate(sizes), strict=True)]

    @cached_property
    def runs(self) -> list[tuple[int, list[int]]]:
        """Stage and layers of each run, in program order."""
        found: list[tuple[int, list[int]]] = []
        for stage, layers in enumerate(self.stages):
            step = len(layers) if self.release == "stage" else self.joined
            found += [(stage, layers[i : i + step]) for i in range(0, len(layers), step)]
        return found

    def subnets(self) -> Iterator[Sequence[Piece]]:
        unit = self.workers / self.blocks / self.micro_batches
        costs = [Cost(n * unit, 2 * n * unit, n * unit, n * unit) for n in (len(layers) for _, layers in self.runs)]
        out, held = self.out_bytes / self.micro_batches, self.held_bytes / self.micro_batches
        for y, drawn in enumerate(self.draws()):
            yield [
                Piece(
                    self._worker(y, 0, stage), tuple([f"{layer}.{drawn[layer]}" for layer in layers]), cost, out,
                    held * len(layers), self.swap_bytes * len(layers),
                    self._spread(y, stage),
                )
                for (stage, layers), cost in zip(self.runs, costs, strict=True)
            ]  # fmt: skip

    def _spread(self, seq_id: int, stage: int) -> tuple[int, ...]:
        if not self.spread and self.replicas == 1:
            return ()
        return tuple(self._worker(seq_id, j, stage) for j in range(self.micro_batches))

    def _worker(self, seq_id: int, micro_batch: int, stage: int) -> int:
        if self.replicas > 1:
            replica = replica_of(seq_id, micro_batch, self.micro_batches, self.replicas)
            return stage % self.depth * self.replicas + replica
        return stage % self.workers if self.place is None else self.place(seq_id, micro_batch, stage)

    def draws(self) -> Iterator[list[int]]:
        """The candidate of every block, subnet by subnet."""
        n = self.candidates
        orders: list[list[int]] = []
        for y in range(self.subnets_wanted):
            if self.sampler == "uniform":
                drawn = numpy_generator(key_for(self.seed, "uniform", y)).integers(n, size=self.blocks).tolist()
            else:
                if not y % n:
                    generator = numpy_generator(key_for(self.seed, "fair", y // n))
                    orders = [generator.permutation(n).tolist() for _ in range(self.blocks)]
                drawn = [order[y % n] for order in orders]
            if self.pinned:
                drawn[0] = drawn[-1] = 0
            yield drawn

    def always(self) -> list[str]:
        """Groups that every subnet reads."""
        return ["0.0", f"{self.blocks - 1}.0"] if self.pinned else []
