"""What each way to order tasks brings, on average over seeds: JSON lines in OUT, and a table on stderr.

    python benchmarks/simulate_orders.py OUT [SEEDS]

Each case is a space with its workers and micro-batches (choice-only unless it says strict); each row changes the row
before it or the one it names in one way. Units as in `sennit.simulate.space_load`: F = I = W, splitting is free.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sennit.schedule.chains import LATER, Chains
from sennit.schedule.csp import CspOrder
from sennit.schedule.order import Order
from sennit.schedule.policy import policy
from sennit.simulate.chain_links import chain_links
from sennit.simulate.cluster import Cluster
from sennit.simulate.engine import Simulation
from sennit.simulate.load import Piece
from sennit.simulate.space_load import SIZES, SpaceLoad
from sennit.simulate.space_run import SpaceRun

SUBNETS = 100
HOST_S = 0.005
"""Host time of a task: some 30 us, where a batch goes forward through a worker's layers in 6 ms."""


@dataclass(frozen=True)
class Case:
    """A space on workers."""

    space: str
    workers: int
    micro_batches: int
    chunks: int
    strict: bool = False

    @property
    def name(self) -> str:
        return f"{self.space} D={self.workers} M={self.micro_batches}" + (" strict" if self.strict else "")

    def run(self, seed: int, *, split: bool = True, in_flight: int = 8, **changes: object) -> SpaceRun:
        blocks, candidates = SIZES[self.space]
        space = SpaceLoad(
            blocks=blocks, candidates=candidates, workers=self.workers, micro_batches=self.micro_batches,
            subnets_wanted=SUBNETS, pinned=self.strict, chunks=self.chunks, seed=seed,
        )  # fmt: skip
        return SpaceRun(space=replace(space, **changes), split=split, in_flight=in_flight)  # type: ignore[arg-type]


CASES = (
    Case("nlp.c1", 8, 4, 6),
    Case("nlp.c3", 8, 4, 6),
    Case("cv.c1", 4, 2, 4),
    Case("cv.c3", 4, 2, 4),
    Case("cv.c3", 8, 8, 4),
    Case("nlp.c1", 8, 8, 3, strict=True),
)


class LookAhead(Simulation):
    """Chains go through subnets that are not in flight yet, as far as the stream is known."""

    ahead = 8

    def start(self) -> None:
        """Draw the first ones; from now on the stream is `ahead` subnets further than what runs."""
        self.known: list[Sequence[Piece]] = []
        self.drawn = 0
        self.observed, self.sync.observe = self.sync.observe, lambda seq_id, groups: None  # type: ignore[method-assign]
        self.raw, self.stream = self.stream, self.further()
        self.told, self.chains = self.chains, None

    def further(self) -> Iterator[Sequence[Piece]]:
        while True:
            while len(self.known) <= self.ahead and (pieces := next(self.raw, None)) is not None:
                y = self.drawn
                self.observed(y, dict.fromkeys(group for piece in pieces for group in piece.groups))
                assert self.told is not None
                self.told.admit(y, chain_links(pieces, lambda group, y=y: self.sync.reads(group, y), split=self.split))
                self.drawn += 1
                self.known.append(pieces)
            if not self.known:
                return
            yield self.known.pop(0)

    def finish(self, y: int) -> None:
        super().finish(y)
        assert self.told is not None
        self.told.forget(self.lowest())


def simulate(run: SpaceRun, *, earliest: bool = False, ahead: int = 0, later: float = LATER) -> float:
    """The bubble of causal order: longest chain first, unless earliest subnet first."""
    orders: list[Order] = []
    chains = Chains(run.space.micro_batches, run.space.workers)
    chains.later = later
    kind = type("Ahead", (LookAhead,), {"ahead": ahead}) if ahead else Simulation
    simulation = kind(
        run.load, orders, run.make_sync(), run.setting.in_flight, split=run.halves, cluster=run.cluster,
        chains=None if earliest else chains,
    )  # fmt: skip
    if isinstance(simulation, LookAhead):
        simulation.start()
    setting = replace(run.setting, chains=chains)
    for worker in range(setting.workers):
        orders.append(CspOrder(simulation.awaited) if earliest else policy("csp").order(worker, setting))
    return simulation.run().bubble


def first_and_last(case: Case, first: float, last: float) -> tuple[int, ...]:
    """Stages of which the first and the last have another share of the layers."""
    n = case.workers * case.chunks
    shares = [first, *[1.0] * (n - 2), last]
    blocks, done, passed = SIZES[case.space][0], 0, 0.0
    sizes: list[int] = []
    for share in shares:
        passed += share
        upto = max(done + 1, round(passed / sum(shares) * blocks))
        sizes.append(upto - done)
        done = upto
    sizes[-1] += blocks - sum(sizes)
    return tuple(sizes)


def rows(case: Case, seed: int) -> Iterator[tuple[str, float]]:
    """Name and bubble of every way."""
    for n in (2, 8, 32):
        yield f"earliest subnet first, {n} in flight", simulate(case.run(seed, in_flight=n), earliest=True)
    for n in (1, 4, 8, 32):
        yield f"longest chain first, {n} in flight", simulate(case.run(seed, in_flight=n))
    best = case.run(seed).with_best_in_flight()
    yield "longest chain first, best in flight by trial", simulate(best)
    for ahead in (4, 16):
        yield f"longest chain first, 8 in flight, {ahead} more known", simulate(case.run(seed), ahead=ahead)
    yield "unsplit", simulate(case.run(seed, split=False))
    if case.chunks * case.workers < SIZES[case.space][0]:
        yield "first chunk half", simulate(case.run(seed, sizes=first_and_last(case, 0.5, 1.0)))
        yield "last chunk half", simulate(case.run(seed, sizes=first_and_last(case, 1.0, 0.5)))
        yield "first and last chunk half", simulate(case.run(seed, sizes=first_and_last(case, 0.5, 0.5)))
    host = Cluster(host_s=HOST_S)
    yield "with host time", simulate(replace(case.run(seed), cluster=host))
    for chunks in (max(1, case.chunks // 2), 1):
        for release in ("layer", "stage"):
            run = case.run(seed, chunks=chunks, release=release)
            yield f"{_chunks(chunks)} by {release}", simulate(run)
            yield f"{_chunks(chunks)} by {release}, with host time", simulate(replace(run, cluster=host))
    for sampler in ("uniform", "fair"):
        whole = case.run(seed, chunks=1, split=False, sampler=sampler)
        yield f"1 chunk by layer, unsplit, {sampler} sampling, earliest subnet first", simulate(whole, earliest=True)
        for later in (0.0, LATER, 1.0):
            yield f"1 chunk by layer, unsplit, {sampler} sampling, due {later:g}", simulate(whole, later=later)
    yield "bound", case.run(seed).bounds().bubble


def _chunks(chunks: int) -> str:
    return "1 chunk" if chunks == 1 else f"{chunks} chunks"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="JSON lines")
    parser.add_argument("seeds", type=int, nargs="?", default=5, help="how many, of which means are taken")
    given = parser.parse_args()
    seeds = given.seeds
    with given.out.open("w") as file:
        for case in CASES:
            found: dict[str, list[float]] = {}
            for seed in range(seeds):
                for name, bubble in rows(case, seed):
                    found.setdefault(name, []).append(bubble)
            for name, bubbles in found.items():
                mean, spread = statistics.mean(bubbles), statistics.pstdev(bubbles)
                line = {"case": case.name, "chunks": case.chunks, "way": name, "bubble": round(mean, 4)}
                file.write(json.dumps({**line, "deviation": round(spread, 4), "seeds": seeds}) + "\n")
                file.flush()
                sys.stderr.write(f"{case.name:<24} {name:<52} {mean:.4f} +- {spread:.4f}\n")


if __name__ == "__main__":
    main()
