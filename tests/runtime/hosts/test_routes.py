"""`Routes` against a model of hosts: whatever the stream and the plan, who reads or steps has what it needs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sennit.errors import UserError
from sennit.recipe import Placement
from sennit.runtime.hosts.hosts import Hosts, refuse
from sennit.runtime.hosts.routes import Need, Routes
from sennit.runtime.hosts.shipping import Key
from sennit.runtime.subnet import BufferOrder, Subnet
from sennit.supernet.bulk import BulkSync
from sennit.supernet.sync import CspSync, Shared, Sync
from tests.runtime.runs import recipe

M, SUBNETS, GROUPS = 2, 14, 5


@dataclass(frozen=True)
class Stretch:
    """As much of a run as routes look at."""

    index: int


@dataclass
class Store:
    """What one host has of a group: versions that can be read, and the one that its optimizer state belongs to."""

    versions: set[Key] = field(default_factory=lambda: {-1})
    state: Key = -1


def subnet(y: int, draw: random.Random, workers: int, always: bool, order: BufferOrder) -> Subnet:
    """Some runs of some groups, anywhere; group 0 is read by the first run and the last one if `always`."""
    n = draw.randint(1, 3)
    spread = tuple(tuple(draw.randrange(workers) for _ in range(M)) for _ in range(n))
    if draw.random() < 0.5:  # as most plans have it
        spread = tuple((s[0],) * M for s in spread)
    read = {r: tuple(f"p{g}" for g in sorted(draw.sample(range(1, GROUPS), draw.randint(0, 2)))) for r in range(n)}
    if always:
        read[0] = ("p0", *read[0])
        read[n - 1] = tuple(dict.fromkeys(("p0", *read[n - 1])))
    moved: dict[int, tuple[tuple[str, int], ...]] = {}
    uses: dict[str, int] = {}
    for r in range(n):
        row: list[tuple[str, int]] = []
        for group in draw.choices(["b0", "b1"], k=draw.randint(0, 2)):
            row.append((group, uses.get(group, 0)))
            uses[group] = uses.get(group, 0) + 1
        moved[r] = tuple(row)
    owner: dict[str, int] = {}
    for r in range(n):
        for group in read[r]:
            owner.setdefault(group, spread[r][0])
    runs = cast("Any", tuple(map(Stretch, range(n))))
    before = order.observe(y, uses, M)
    return Subnet(y, {}, cast("Any", None), runs, spread, (), read, moved, owner, {}, {}, before, uses)


def rule(kind: str) -> tuple[Sync, int]:
    """The rule, and the subnets of a bulk."""
    if kind == "bulk":
        return BulkSync(3), 3
    return (CspSync(["p0"], Shared("delayed", 3)), 1) if kind == "delayed" else (CspSync([], Shared("strict")), 1)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**9), workers=st.integers(2, 6), count=st.integers(2, 3),
    kind=st.sampled_from(["csp", "bulk", "delayed"]), start=st.integers(0, 5),
)  # fmt: skip
def test_everyone_has_what_it_needs(seed: int, workers: int, count: int, kind: str, start: int) -> None:
    """Also where a run goes on whose gradients waited under `delayed:K`, whoever steps them."""
    draw, hosts = random.Random(seed), Hosts(0, min(count, workers), workers)
    sync, bulk = rule(kind)
    delayed = {"p0"} if kind == "delayed" else set[str]()
    start = start if delayed else 0
    newest, heir = max(start - 3, -1), draw.randrange(workers)
    waiting = {group: dict.fromkeys(range(newest + 1, start), heir) for group in delayed}
    routes, order = Routes(hosts, (), delayed, waiting), BufferOrder()
    stores: list[dict[str, Store]] = [{} for _ in range(hosts.count)]

    def at(host: int, group: str) -> Store:
        came = newest if group in delayed else -1
        first = Store({came}, came) if group[0] == "p" else Store({(-1, -1, -1)})
        return stores[host].setdefault(group, first)

    for group, makers in waiting.items():
        for x, maker in makers.items():
            step(at(hosts.of(maker), group), x, x - 1, True)

    owners: dict[str, int] = {}
    last: dict[str, int] = {}
    for y in range(start, start + SUBNETS * bulk):
        made = subnet(y, draw, workers, kind == "delayed", order)
        if kind == "bulk":
            for group, worker in made.owner.items():
                owners.setdefault(group, worker)
            made.owner.update({group: owners[group] for group in made.owner})
        sync.observe(y, made.owner)
        later: list[Need] = []
        for need in routes.let_in(made, sync):
            if isinstance(need.key, tuple) and need.key[0] == y:
                later.append(need)  # not written yet
            else:
                push(need, hosts, at, need.group in delayed)
        forward(made, hosts, sync, at, later)
        for group, owner in made.owner.items():
            last[group] = y
            if kind != "bulk":
                step(
                    at(hosts.of(owner), group), y, y - 1 if group in delayed else sync.reads(group, y), group in delayed
                )
        if kind == "bulk" and (y + 1) % bulk == 0:
            for group, owner in owners.items():
                step(at(hosts.of(owner), group), last[group], None, False)
            owners.clear()
    for group, y in last.items():
        if group not in delayed:
            assert routes.newest(group, start + SUBNETS * bulk) == y


def push(need: Need, hosts: Hosts, at: Any, keeps: bool) -> None:
    """A version travels."""
    source, target = at(hosts.of(need.maker), need.group), at(hosts.of(need.reader), need.group)
    assert source is not target and need.key in source.versions
    target.versions = {*target.versions, need.key} if keeps else {need.key}
    if need.state and isinstance(need.key, int):
        assert source.state == need.key
        target.state = need.key


def forward(made: Subnet, hosts: Hosts, sync: Sync, at: Any, later: list[Need]) -> None:
    """All forwards of a subnet, in order of micro-batches."""
    for j in range(M):
        for run in made.runs:
            here = hosts.of(made.worker(run.index, j))
            for group in made.read_by_run[run.index]:
                assert sync.reads(group, made.seq_id) in at(here, group).versions
            ends = dict(made.last_moves(run))
            for group, use in made.first_moves(run):
                assert made.word_before(group, j, use) in at(here, group).versions
                at(here, group).versions = {(made.seq_id, j, ends[group])}
                for need in later:
                    if (need.group, need.key) == (group, (made.seq_id, j, ends[group])):
                        push(need, hosts, at, keeps=False)


def step(store: Store, version: int, before: int | None, keeps: bool) -> None:
    """The owner's host has the state of the version before, and makes the next."""
    assert before is None or store.state == before
    store.versions = {*store.versions, version} if keeps else {version}
    store.state = version


@pytest.mark.parametrize(("workers", "count", "begins"), [(4, 2, [0, 2]), (5, 2, [0, 2]), (3, 3, [0, 1, 2])])
def test_workers_in_turn(workers: int, count: int, begins: Sequence[int]) -> None:
    hosts = Hosts(0, count, workers)
    assert [next(iter(hosts.on(host))) for host in range(count)] == begins
    assert [hosts.of(w) for w in range(workers)] == [h for h in range(count) for _ in hosts.on(h)]


def test_a_worker_for_each_host() -> None:
    with pytest.raises(UserError, match="use at least --workers 3"):
        refuse(recipe(), Placement(workers=2), "pipeline", 3)


def test_a_budget_is_refused_on_several_hosts() -> None:
    with pytest.raises(UserError, match=r"--budget 1 does not run on 2 hosts yet"):
        refuse(recipe(), Placement(workers=2, budget=1.0), "pipeline", 2)
