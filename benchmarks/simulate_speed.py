"""How fast the simulator and its schedulers are, and whether they stay so: JSON lines on stdout, one for each case.

    python benchmarks/simulate_speed.py              all
    python benchmarks/simulate_speed.py static ...   some of: static, stream, decision, small, long

    static     1,000 stages x 1,000 micro-batches, 1F1B
    stream     8 stages x 10,000 subnets x M = 8, causal order by stage
    decision   48 blocks by layer, 64 subnets in flight: what the scheduler takes for a task
    small      2 stages x 10,000 subnets x M = 1, 8 in flight: peak memory and decision
    long       the same with 1,000,000 subnets

Each case runs in a process of its own, so that its peak memory is its own. A decision is `add` + `pop` of an order; the
median of each is taken over all calls, in buckets of 10 ns.
"""

from __future__ import annotations

import json
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sennit.schedule.chains import Chains
from sennit.schedule.order import Order, Task
from sennit.simulate.engine import Simulation
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
    """Seconds and rate of a simulation."""
    begin = time.perf_counter()
    outcome = run.simulate()
    seconds = time.perf_counter() - begin
    return {
        "seconds": round(seconds, 2), "tasks": outcome.tasks, "tasks_per_s": round(outcome.tasks / seconds),
        "bubble": round(outcome.bubble, 4),
    }  # fmt: skip


def decided(run: SpaceRun) -> dict[str, Any]:
    """What its scheduler takes for a task."""
    adds, pops = [0] * BUCKETS, [0] * BUCKETS
    chains = Chains(run.space.micro_batches)
    orders: list[Order] = []
    simulation = Simulation(run.load, orders, run.make_sync(), run.setting.in_flight, split=run.halves, chains=chains)
    setting = replace(run.setting, awaited=simulation.awaited, chains=chains)
    orders += [Timed(run.policy.order(worker, setting), adds, pops) for worker in range(setting.workers)]
    begin = time.perf_counter()
    outcome = simulation.run()
    return {
        "seconds": round(time.perf_counter() - begin, 2), "tasks": outcome.tasks,
        "decision_median_us": round(quantile_us(adds, 0.5) + quantile_us(pops, 0.5), 3),
        "decision_p99_us": round(quantile_us(adds, 0.99) + quantile_us(pops, 0.99), 3),
    }  # fmt: skip


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
    return decided(SpaceRun(space=space, in_flight=64, split=True))


def small(subnets: int = 10_000) -> dict[str, Any]:
    space = SpaceLoad(
        blocks=2, candidates=48, workers=2, micro_batches=1, subnets_wanted=subnets, release="stage"
    )  # fmt: skip
    return decided(SpaceRun(space=space, in_flight=8))


def long() -> dict[str, Any]:
    return small(1_000_000)


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
    for name in sys.argv[1:] or CASES:
        subprocess.run([sys.executable, __file__, "--case", name], check=True)


if __name__ == "__main__":
    main()
