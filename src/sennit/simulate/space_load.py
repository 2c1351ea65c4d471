"""`SpaceLoad`: a stream of subnets of a space that is its choice blocks alone, all of equal cost.

    nlp.c1   48 blocks of 72 candidates      a subnet picks one candidate per block; whoever picks the same waits

The unit of time is the forward of a whole batch through the layers of one worker. I and W take one unit each, B two
(splitting is free here), so a perfect pipeline takes three units a subnet, whatever the space.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from sennit.errors import UserError
from sennit.simulate.load import Cost, Piece
from sennit.supernet.keys import key_for, numpy_generator

SIZES: dict[str, tuple[int, int]] = {
    "nlp.c0": (48, 96), "nlp.c1": (48, 72), "nlp.c2": (48, 48), "nlp.c3": (48, 24),
    "cv.c1": (32, 48), "cv.c2": (32, 24), "cv.c3": (32, 12),
}  # fmt: skip
"""Name to choice blocks and candidates per block (NASPipe, Table 1)."""

Release = Literal["layer", "stage"]


@dataclass(frozen=True, kw_only=True)
class SpaceLoad:
    """A stream of subnets of such a space.

    Attributes:
        blocks, candidates: of the space.
        subnets_wanted: length of the stream.
        sampler: uniform, or fair: every round of n subnets uses each candidate of a block once.
        pinned: the first and the last block have one candidate only, shared by all.
        chunks: how often each worker gets a stretch of the network in turn.
        release: layer: every layer is a run of its own, and its version is there once its gradients are; stage: all
            layers of a chunk are one run.
    """

    blocks: int
    candidates: int
    workers: int
    micro_batches: int
    subnets_wanted: int
    sampler: Literal["uniform", "fair"] = "uniform"
    pinned: bool = False
    chunks: int = 1
    release: Release = "layer"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("blocks", "candidates", "workers", "micro_batches", "subnets_wanted", "chunks"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.workers * self.chunks > self.blocks:
            raise UserError(
                f"{self.workers} workers x {self.chunks} chunks need as many layers, the space has {self.blocks}; use "
                f"at most {max(1, self.blocks // self.workers)} chunks"
            )

    @cached_property
    def stretches(self) -> list[tuple[int, list[int]]]:
        """Worker and layers of each run, in program order."""
        chunk_of = [layer * self.workers * self.chunks // self.blocks for layer in range(self.blocks)]
        if self.release == "layer":
            return [(chunk % self.workers, [layer]) for layer, chunk in enumerate(chunk_of)]
        held: dict[int, list[int]] = {}
        for layer, chunk in enumerate(chunk_of):
            held.setdefault(chunk, []).append(layer)
        return [(chunk % self.workers, layers) for chunk, layers in held.items()]

    def subnets(self) -> Iterator[Sequence[Piece]]:
        unit = self.workers / self.blocks / self.micro_batches
        names = [[f"{layer}.{c}" for c in range(self.candidates)] for layer in range(self.blocks)]
        costs = [
            Cost(n * unit, 2 * n * unit, n * unit, n * unit) for n in (len(layers) for _, layers in self.stretches)
        ]
        for drawn in self.draws():
            yield [
                Piece(worker, tuple(names[layer][drawn[layer]] for layer in layers), cost)
                for (worker, layers), cost in zip(self.stretches, costs, strict=True)
            ]

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
