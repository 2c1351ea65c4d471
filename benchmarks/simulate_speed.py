"""How fast the simulator and its schedulers are, and whether they stay so: JSON lines on stdout, one for each case.

    python benchmarks/simulate_speed.py              all
    python benchmarks/simulate_speed.py static ...   some of: static, stream, decision, small, long

    static     1,000 stages x 1,000 micro-batches, 1F1B
    stream     8 stages x 10,000 subnets x M = 8, causal order by stage
    decision   48 blocks by layer, 64 subnets in flight: what the scheduler takes for a task
    small      2 stages x 10,000 subnets x M = 1, 8 in flight: peak memory and decision
    long       the same with 1,000,000 subnets

Each case runs in a process of its own, so that its peak memory is its own. A decision is `add` + `pop` of an order; the
median of each is taken over all calls, in buckets of 10 ns. `long` stops 20 times for a fresh simulation of 10,000
subnets and gives the median of those, too: whatever else the machine does, both see it.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sennit.schedule.chains import Chains
from sennit.schedule.order import Order, Task
from sennit.simulate.engine import Simulation
from sennit.simulate.load import Load, Piece
from sennit.simulate.space_load import SpaceLoad
from sennit.simulate.space_run import SpaceRun

BUCKET_NS = 10
BUCKETS = 10_000


class Timed:
    """An order that is timed."""

    def __init__(self, order: Order, adds: list[int], pops: list[int]) -> None:
        self.order, self.adds, self.pops = order, adds, pops

    def add(self, task: Task) -> None:
        begin = time.perf_counter_ns()
        self.order.add(task)
        self.adds[min((time.perf_counter_ns() - begin) // BUCKET_NS, BUCKETS - 1)] += 1

    def pop(self) -> Task | None:
        begin = time.perf_counter_ns()
        task = self.order.pop()
        self.pops[min((time.perf_counter_ns() - begin) // BUCKET_NS, BUCKETS - 1)] += 1
        return task


def quantile_us(counts: list[int], part: float) -> float:
    """Of a histogram of times, microseconds."""
    wanted, seen = part * sum(counts), 0
    for bucket, count in enumerate(counts):
        seen += count
        if seen >= wanted:
            return (bucket + 1) * BUCKET_NS / 1000
    raise AssertionError("empty")


def simulated(run: SpaceRun) -> dict[str, Any]:
    """Seconds and rate of a simulation; of the process, since others may use the machine."""
    begin, cpu = time.perf_counter(), time.process_time()
    outcome = run.simulate()
    seconds = time.process_time() - cpu
    return {
        "cpu_s": round(seconds, 2), "wall_s": round(time.perf_counter() - begin, 2), "tasks": outcome.tasks,
        "tasks_per_s": round(outcome.tasks / seconds), "bubble": round(outcome.bubble, 4),
    }  # fmt: skip


class Decisions:
    """What schedulers take for a task, over one or more simulations."""

    def __init__(self) -> None:
        self.adds, self.pops = [0] * BUCKETS, [0] * BUCKETS

    def run(self, run: SpaceRun, load: Load | None = None) -> int:
        """Simulate with timed orders. Returns how many tasks ran."""
        chains = Chains(run.space.micro_batches, run.space.workers)
        orders: list[Order] = []
        simulation = Simulation(
            load or run.load, orders, run.make_sync(), run.setting.in_flight, split=run.halves, chains=chains
        )
        setting = replace(run.setting, awaited=simulation.awaited, chains=chains)
        for worker in range(setting.workers):
            orders.append(Timed(run.policy.order(worker, setting), self.adds, self.pops))
        return simulation.run().tasks

    def found(self) -> dict[str, float]:
        return {
            "decision_median_us": round(quantile_us(self.adds, 0.5) + quantile_us(self.pops, 0.5), 3),
            "decision_p99_us": round(quantile_us(self.adds, 0.99) + quantile_us(self.pops, 0.99), 3),
        }


@dataclass(frozen=True)
class Paused:
    """A load that lets something else be done every so many subnets."""

    load: SpaceLoad
    every: int
    meanwhile: Callable[[], object]

    @property
    def workers(self) -> int:
        return self.load.workers

    @property
    def micro_batches(self) -> int:
        return self.load.micro_batches

    def subnets(self) -> Iterator[Sequence[Piece]]:
        for y, pieces in enumerate(self.load.subnets()):
            if y % self.every == self.every // 2:
                self.meanwhile()
            yield pieces


def static() -> dict[str, Any]:
    space = SpaceLoad(
        blocks=1000, candidates=1, workers=1000, micro_batches=1000, subnets_wanted=1, release="stage"
    )  # fmt: skip
    return simulated(SpaceRun(space=space, schedule="1f1b", sync="bulk:1"))


def stream() -> dict[str, Any]:
    space = SpaceLoad(
        blocks=48, candidates=72, workers=8, micro_batches=8, subnets_wanted=10_000, release="stage"
    )  # fmt: skip
    return simulated(SpaceRun(space=space, in_flight=8))


def decision() -> dict[str, Any]:
    space = SpaceLoad(blocks=48, candidates=72, workers=8, micro_batches=8, subnets_wanted=200, chunks=6)
    held = Decisions()
    return {"tasks": held.run(SpaceRun(space=space, in_flight=64, split=True)), **held.found()}


def _two_stages(subnets: int) -> SpaceRun:
    space = SpaceLoad(
        blocks=2, candidates=48, workers=2, micro_batches=1, subnets_wanted=subnets, release="stage"
    )  # fmt: skip
    return SpaceRun(space=space, in_flight=8)


def small() -> dict[str, Any]:
    held = Decisions()
    return {"tasks": held.run(_two_stages(10_000)), **held.found()}


def long() -> dict[str, Any]:
    fresh, held, run = Decisions(), Decisions(), _two_stages(1_000_000)
    load = Paused(run.load, 50_000, lambda: fresh.run(_two_stages(10_000)))
    tasks = held.run(run, load)
    return {"tasks": tasks, **held.found(), "fresh_median_us": fresh.found()["decision_median_us"]}


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "static": static, "stream": stream, "decision": decision, "small": small, "long": long,
}  # fmt: skip


def main() -> None:
    if sys.argv[1:2] == ["--case"]:
        name = sys.argv[2]
        found = CASES[name]()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        where = {"python": platform.python_version(), "machine": platform.machine()}
        sys.stdout.write(json.dumps({"case": name, **found, "peak_mib": round(peak, 1), **where}) + "\n")
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)} (default: all)")
    chosen = parser.parse_args().cases
    if unknown := [name for name in chosen if name not in CASES]:
        parser.error(f"{', '.join(unknown)}: no such case; there are {', '.join(CASES)}")
    for name in chosen or CASES:
        subprocess.run([sys.executable, __file__, "--case", name], check=True)


if __name__ == "__main__":
    main()
