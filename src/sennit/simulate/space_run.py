"""A space under a schedule: simulated, bounded, and what each lever would bring."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from sennit.errors import UserError
from sennit.schedule.csp import CspOrder
from sennit.simulate.bounds import Bounds, bounds
from sennit.simulate.engine import Outcome, Simulation, Watch
from sennit.simulate.space_load import SpaceLoad
from sennit.supernet.sync import CspSync, Shared


@dataclass(frozen=True, kw_only=True)
class SpaceRun:
    """What is simulated.

    Attributes:
        load: the stream and where its layers are.
        in_flight: most unfinished subnets.
        split: backward as I and W.
        shared: policy for the groups that all subnets read.
    """

    load: SpaceLoad
    in_flight: int
    split: bool
    shared: Shared

    def __post_init__(self) -> None:
        if self.in_flight < 1:
            raise UserError(f"--in-flight must be at least 1, got {self.in_flight}")

    def simulate(self, watch: Watch | None = None) -> Outcome:
        """Under CSP order, on the workers' own order object."""
        orders: list[CspOrder] = []
        simulation = Simulation(self.load, orders, self.sync(), self.in_flight, split=self.split, watch=watch)
        orders += [CspOrder(simulation.awaited) for _ in range(self.load.workers)]
        return simulation.run()

    def bounds(self) -> Bounds:
        """Under any order with as many subnets in flight."""
        return bounds(self.load, self.sync(), self.in_flight, split=self.split)

    def sync(self) -> CspSync:
        return CspSync(self.load.always(), self.shared)

    def levers(self) -> Iterator[tuple[str, SpaceRun]]:
        """Changes that could bring something, one at a time, in words that the command understands."""
        load, m = self.load, self.load.micro_batches
        yield f"-M {2 * m}", replace(self, load=replace(load, micro_batches=2 * m))
        if not self.split:
            yield "--split", replace(self, split=True)
        if load.release == "stage":
            yield "--release layer", replace(self, load=replace(load, release="layer"))
        if load.sampler == "uniform":
            yield "--sampler fair", replace(self, load=replace(load, sampler="fair"))
        if load.pinned and self.shared.kind == "strict":
            yield "--shared delayed:2", replace(self, shared=Shared("delayed", 2))
        more = load.chunks + 1
        if load.workers * more <= load.blocks:
            yield f"--chunks {more}", replace(self, load=replace(load, chunks=more))
        for other in sorted({max(1, self.in_flight // 2), self.in_flight + 1, 2 * self.in_flight} - {self.in_flight}):
            yield f"--in-flight {other}", replace(self, in_flight=other)

    def report(self, *, with_levers: bool = True, watch: Watch | None = None) -> dict[str, Any]:
        """What `sennit simulate --json` gives."""
        outcome, bound = self.simulate(watch), self.bounds()
        levers = (
            [{"change": name, "bubble": run.simulate().bubble} for name, run in self.levers()] if with_levers else []
        )
        return {
            "bubble": outcome.bubble, "makespan": outcome.makespan, "bound": bound.makespan,
            "bubble_at_bound": bound.bubble, "binds": bound.binds,
            "bounds": {"dependencies": bound.dependencies, "devices": bound.devices},
            "tasks": outcome.tasks, "subnets": outcome.subnets,
            "levers": sorted(levers, key=lambda lever: lever["bubble"]),
        }  # fmt: skip
