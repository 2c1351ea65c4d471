"""Bounds: by hand, against the best of all orders on tiny cases, and for one machine against all permutations."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sennit.schedule.csp import CspOrder
from sennit.schedule.setting import Setting
from sennit.simulate.bounds import Bounds, bounds
from sennit.simulate.cluster import Cluster, Link
from sennit.simulate.engine import Simulation
from sennit.simulate.load import Cost, Piece
from sennit.simulate.one_machine import Job, one_machine
from sennit.supernet.bulk import AspSync
from sennit.supernet.sync import CspSync, Shared
from sennit.supernet.sync_rule import SyncRule
from tests.simulate.best_order import shortest
from tests.simulate.cases import Drawn, branches
from tests.simulate.rules import Fixed

ONE = Cost(1.0, 2.0, 1.0, 1.0)


def of(load: Fixed, in_flight: int = 9, split: bool = False, cluster: Cluster | None = None) -> Bounds:
    return bounds(load, CspSync([], Shared("strict")), in_flight, split=split, cluster=cluster)


def chain(subnets: int, m: int, *, own: bool = False, out: float = 0.0, held: float = 0.0) -> Fixed:
    """Two runs on two workers; `own`: subnets share nothing."""
    return Fixed(
        2, m,
        tuple(
            tuple(Piece(r, (f"{r}.{y if own else 0}",), ONE, out_bytes=out, held_bytes=held) for r in range(2))
            for y in range(subnets)
        ),
    )  # fmt: skip


def test_dependencies_by_hand() -> None:
    """Three subnets that share all: each goes there (2) and back (4), one after another."""
    found = of(chain(3, 1))
    assert (found.dependencies, found.devices, found.binds) == (3 * 6, 1 + 3 * 3 + 2, "dependencies")
    assert found.makespan == found.together == 18 and found.work == 18
    assert found.bubble == pytest.approx(0.5)


def test_nothing_that_takes_time_has_no_bubble() -> None:
    load = Fixed(2, 1, (tuple(Piece(r, (), Cost(0.0, 0.0, 0.0, 0.0)) for r in range(2)),))
    found = of(load)
    assert (found.makespan, found.bubble) == (0.0, 0.0)
    assert Simulation(load, [CspOrder(), CspOrder()], AspSync(), 1).run().bubble == 0.0


def test_devices_by_hand() -> None:
    """They share nothing: worker 1 starts after one forward, and after its last backward one is to come: 1 + 9 + 2."""
    found = of(chain(3, 1, own=True))
    assert (found.devices, found.makespan, found.binds) == (12, 12, "devices")


def test_links_by_hand() -> None:
    """Messages of 4 s on one channel for both directions: the first after F, and after the last one a B: 1 + 24 + 2."""
    slow = Cluster(links=(Link(bandwidth=1.0, medium="half"),))
    found = of(chain(3, 1, own=True, out=4.0), cluster=slow)
    assert (found.links, found.binds) == (1 + 3 * 8 + 2, "links")
    both = Cluster(links=(Link(bandwidth=1.0, latency=0.5),))
    found = of(chain(3, 1, own=True, out=4.0), cluster=both)
    there_and_back = 1 + 4.5 + 1 + 2 + 4.5 + 2
    assert found.dependencies == there_and_back
    assert found.links == there_and_back + 2 * 4  # two more messages, one behind the other


def test_memory_by_hand() -> None:
    """Room for one on worker 0, which holds each from F to B: 1 + (1 + 2) + 2 s, three times."""
    found = of(chain(3, 1, own=True, held=1.0), cluster=Cluster(memory_bytes=(1.0, 9.0)))
    assert (found.memory, found.binds) == (18, "memory")


def test_together_sees_what_neither_sees_alone() -> None:
    """
    time      0  1  2  3  4  5  6  7  8  9  10 11 12 13 14
    worker 0  F0 F0 F0 .  .  .  .  .  .  B0 B0 B0 .  .  .       subnets 0 and 1 meet on worker 1, which before that
    worker 1  F2 B2 .  F0 F0 F1 F1 B0 B0 B1 B1 ...              can do subnet 2 alone: 3 + 8 + 3
    worker 2  F1 F1 F1 .  .  .  .  .  .  .  .  B1 B1 B1
    """
    meeting = Cost(2.0, 2.0, 0.0, 0.0)
    ways = [(Piece(k, (f"{k}",), Cost(3.0, 3.0, 0.0, 0.0)), Piece(1, (f"{k}+",), meeting)) for k in (0, 2)]
    found = of(Fixed(3, 1, (*ways, (Piece(1, (), Cost(1.0, 1.0, 0.0, 0.0)),))))
    assert (found.dependencies, found.devices, found.together, found.makespan) == (10, 10, 14, 14)


tiny = st.integers(1, 5).map(lambda n: n / 2)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.tuples(tiny, tiny, tiny), min_size=1, max_size=5))
def test_one_machine_is_below_every_order_and_above_the_simple_bounds(jobs: list[Job]) -> None:
    found = one_machine(jobs)
    best = min(map(makespan, permutations(jobs)))
    assert found <= best + 1e-9
    assert found >= max(sum(job) for job in jobs) - 1e-9
    for least in {head for head, _, _ in jobs}:
        late = [job for job in jobs if job[0] >= least]
        assert found >= least + sum(work for _, work, _ in late) + min(tail for _, _, tail in late) - 1e-9


def makespan(jobs: tuple[Job, ...]) -> float:
    now = longest = 0.0
    for head, work, tail in jobs:
        now = max(now, head) + work
        longest = max(longest, now + tail)
    return longest


def test_one_machine_of_nothing() -> None:
    assert one_machine([]) == 0.0


@st.composite
def tiny_cases(draw: st.DrawFn) -> Drawn:
    """At most 8 tasks on 2 workers; links that can carry any number of messages at once."""
    split, m = draw(st.booleans()), draw(st.integers(1, 2))
    shape = draw(st.sampled_from([(1, 1), (1, 2), (2, 1), (2, 2), (4, 1), (3, 1), (1, 3), (1, 4)]))
    subnets, runs = shape
    assume(subnets * runs * m * (3 if split else 2) <= 8)
    half = st.integers(1, 5).map(lambda n: n / 2)
    sources = draw(branches(runs))
    stream = tuple(
        tuple(
            Piece(
                draw(st.integers(0, 1)), draw(st.sampled_from([(), ("a",), (f"{r}",)])),
                Cost(draw(half), draw(half), draw(half), draw(half)), sources=sources[r],
                step=draw(st.sampled_from([0.0, 1.5])),
            )
            for r in range(runs)
        )
        for _ in range(subnets)
    )  # fmt: skip
    setting = Setting(workers=2, micro_batches=m, in_flight=draw(st.integers(1, 3)), split=split)
    cluster = Cluster(links=(Link(latency=draw(half)),), host_s=draw(st.sampled_from([0.0, 0.5])))
    rule = SyncRule.parse(draw(st.sampled_from(["csp", "bulk:2", "asp:none"])))
    return Drawn("csp", setting, Fixed(2, m, stream), rule, Shared("strict"), cluster)


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(tiny_cases())
def test_no_order_at_all_beats_the_bound(case: Drawn) -> None:
    bound = bounds(case.load, case.sync(), case.setting.in_flight, split=case.setting.split, cluster=case.cluster)
    assert bound.makespan <= shortest(case.case) + 1e-9


def test_branches_by_hand() -> None:
    """
    worker 0   0F .  .  .  .  0B 0B
    worker 1   .  1F .  1B 1B                0 ──▶ 1 ──▶ 2 and 0 ──▶ 2; a message takes half a second,
    worker 0   .  .  2F 2B                   and B of run 2 takes one: 1 + .5 + 1 + .5 + 1 + 1 + .5 + 2 + .5 + 2
    """
    cost = (ONE, ONE, Cost(1.0, 1.0, 0.0, 0.0))
    pieces = tuple(
        Piece(r % 2, (f"{r}",), cost[r], sources=sources, held_bytes=float(not r))
        for r, sources in enumerate([(), (0,), (0, 1)])
    )
    slow = Cluster(links=(Link(latency=0.5),), memory_bytes=(1.0, 1.0))
    found = of(Fixed(2, 1, (pieces,)), cluster=slow)
    assert found.dependencies == found.memory == found.makespan == 10


def test_a_step_by_hand() -> None:
    """Both subnets take the same layers, whose step takes 1 s and begins when the gradient has left:

    worker 0  0F .  .  .  0B 0B *  0F .  .  .  0B 0B *
    worker 1  .  1F 1B 1B *  .  .  .  1F 1B 1B *  .  .
    """
    pieces = tuple(Piece(r, (f"{r}",), ONE, step=1.0) for r in range(2))
    found = of(Fixed(2, 1, (pieces, pieces)))
    assert found.dependencies == found.makespan == 14
    assert found.work == 2 * 2 * 4
    assert found.devices == 1 + 2 * 4  # worker 1 begins behind 0F, and nobody waits for its last step


def test_asynchronous_reads_wait_for_nothing() -> None:
    found = bounds(chain(3, 1), AspSync(), 9)
    assert (found.dependencies, found.devices) == (6, 12)
