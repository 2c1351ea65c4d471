"""Random cases for the simulator: every policy, every rule, links, memory, swaps, costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hypothesis import assume
from hypothesis import strategies as st

from sennit.errors import UserError
from sennit.plan.replicated import replica_of
from sennit.schedule.chains import Chains
from sennit.schedule.order import Order
from sennit.schedule.policy import MODULES, Policy, policy
from sennit.schedule.setting import Setting
from sennit.simulate.cluster import Cluster, Link, Medium
from sennit.simulate.engine import Simulation
from sennit.simulate.load import Cost, Piece
from sennit.simulate.outcome import Outcome
from sennit.supernet.sync import Shared, Sync
from sennit.supernet.sync_rule import SyncRule
from sennit.trace.span import Span
from tests.simulate.rules import Case, Fixed, writers_before

SYNCS = ("csp", "bulk-per-worker", "bulk:2", "bulk:3", "asp:2bw", "asp:stash")

LISTED = ("gpipe", "1f1b", "interleaved", "zero-bubble", "zbv", "chimera", "pipedream")
"""Fixed orders, which may need more memory than there is."""


@dataclass(frozen=True)
class Drawn:
    """A load with everything that decides how it runs."""

    name: str
    setting: Setting
    load: Fixed
    rule: SyncRule
    shared: Shared
    cluster: Cluster
    apart: bool = False
    """Whether steps are work of their own."""

    @property
    def policy(self) -> Policy:
        return policy(self.name)

    @cached_property
    def always(self) -> list[str]:
        """Groups that every subnet holds."""
        return sorted(set.intersection(*[{g for piece in pieces for g in piece.groups} for pieces in self.load.stream]))

    def sync(self) -> Sync:
        return self.rule.make(self.always, self.shared, self.load.workers)

    def included(self, y: int, group: str) -> list[int]:
        """The meaning of the rules, from the contract."""
        if self.rule.kind == "asp":
            return []
        if group in self.always and self.shared.kind == "frozen":
            return []
        if self.rule.kind == "bulk":
            size = self.rule.bulk(self.load.workers)
            return writers_before(self.load, group, (y // size - self.rule.behind) * size)
        lag = self.shared.lag if group in self.always and self.shared.kind == "delayed" else 1
        return writers_before(self.load, group, y - lag + 1)

    @property
    def case(self) -> Case:
        return Case(
            self.load,
            self.setting.in_flight,
            self.setting.split,
            self.included,
            self.cluster,
            self.apart,
            self.name == "csp",
        )

    def run(self, kind: type[Simulation] = Simulation) -> tuple[Outcome, list[Span]]:
        spans: list[Span] = []
        orders: list[Order] = []
        held, setting = self.policy, self.setting
        chains = Chains(self.load.micro_batches, self.load.workers) if held.chained else None
        run = kind(
            self.load, orders, self.sync(), setting.in_flight, split=setting.split, apart=self.apart,
            cluster=self.cluster, chains=chains, watch=spans.append,
        )  # fmt: skip
        setting = replace(setting, awaited=run.awaited, chains=chains)
        orders += [held.order(worker, setting) for worker in range(self.load.workers)]
        return run.run(), spans


@st.composite
def drawn(draw: st.DrawFn, names: Sequence[str] = tuple(MODULES), syncs: Sequence[str] = SYNCS) -> Drawn:
    """Any policy with anything that it can run under."""
    name = draw(st.sampled_from(names))
    held = policy(name)
    workers, m = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    rule = draw(st.sampled_from([rule for rule in map(SyncRule.parse, syncs) if rule.kind in held.rules]))
    policies = {"csp": ["strict", "delayed:2", "delayed:3", "frozen"], "bulk": ["strict", "frozen"], "asp": ["strict"]}
    counts = sorted(draw(st.lists(st.integers(1, 5), min_size=workers, max_size=workers)), reverse=True)
    total = draw(st.integers(1, 7))
    setting = Setting(
        workers=workers, micro_batches=m, chunks=draw(st.integers(1, 2)) if held.chunked else 1,
        bulk=rule.bulk(workers), in_flight=draw(st.integers(1, 5)), end=lambda: total,
        warmup=tuple(counts) if held.warmed and draw(st.booleans()) else None,
        split=draw(st.booleans()) if held.split is None else held.split,
    )  # fmt: skip
    cluster = draw(clusters(workers)) if draw(st.booleans()) else Cluster()
    replicas = 1
    if "layer" in held.releases and rule.kind != "asp":
        replicas = draw(st.sampled_from([n for n in range(1, workers + 1) if not workers % n]))
    load = draw(streams(held, setting, total, replicas))
    if name not in LISTED and draw(st.booleans()):
        cluster = replace(cluster, memory_bytes=draw(limits(load)))
    try:
        held.order(0, replace(setting, chains=Chains(m, workers)))
    except UserError:
        assume(False)  # rounds that do not come out even
    shared = Shared.parse(draw(st.sampled_from(policies[rule.kind])))
    return Drawn(name, setting, load, rule, shared, cluster, draw(st.booleans()))


@st.composite
def streams(draw: st.DrawFn, held: Policy, setting: Setting, total: int, replicas: int = 1) -> Fixed:
    """Subnets on the policy's stages; with runs of layers if it knows them. `t` is one group in several runs. Buffers
    are each run's own; where runs are no fixed list, some may be several runs'."""
    m, stages, spread = setting.micro_batches, held.stages(setting) // replicas, held.per_micro_batch or replicas > 1
    several = "layer" in held.releases and draw(st.booleans())
    runs = [s for s in range(stages) for _ in range(draw(st.integers(1, 2)) if several else 1)]
    candidates = draw(st.integers(1, 3))
    shared = ["#"] if "layer" in held.releases else []
    cost = st.floats(0.25, 4.0, width=16)
    size = st.sampled_from([0.0, 0.5, 1.0, 3.0])
    reach = draw(st.sampled_from([0.0, 0.75]))
    table = {
        (r, c): Piece(
            0, (*(f"{r}.{c}.{i}" for i in range(draw(st.integers(0, 2)))), *["t"][: draw(st.integers(0, 1))]),
            Cost(draw(cost), draw(cost), draw(cost), draw(cost)), draw(size), draw(size), draw(size),
            step=draw(st.sampled_from([0.0, 0.5])), reach=reach,
            moves=tuple(name for name in (f"{r}#", *shared) if draw(st.integers(0, 3)) == 0),
        )
        for r in range(len(runs)) for c in range(candidates)
    }  # fmt: skip

    def placed(y: int, r: int, c: int) -> Piece:
        where = [held.place(setting, runs[r], setting.number(y, j)) for j in range(m)]
        if replicas > 1:
            first = runs[r] % (setting.workers // replicas) * replicas
            where = [first + replica_of(y, j, m, replicas) for j in range(m)]
        return replace(table[r, c], worker=where[0], spread=tuple(where) if spread else ())

    sources = draw(branches(len(runs)))
    table = {(r, c): replace(piece, sources=sources[r]) for (r, c), piece in table.items()}
    chosen = st.tuples(*[st.integers(0, candidates - 1) for _ in runs])
    rows = draw(st.lists(chosen, min_size=total, max_size=total))
    return Fixed(
        setting.workers, m, tuple(tuple(placed(y, r, c) for r, c in enumerate(row)) for y, row in enumerate(rows))
    )


@st.composite
def branches(draw: st.DrawFn, runs: int) -> list[tuple[int, ...] | None]:
    """Whose output each run reads: any of those before it, and the last one whatever nobody else does; or a chain."""
    if draw(st.booleans()):
        return [None] * runs
    sources = [draw(st.sets(st.integers(0, r - 1))) if r else set[int]() for r in range(runs)]
    sources[-1] |= set(range(runs - 1)) - set[int]().union(*sources)
    return [tuple(sorted(held)) for held in sources]


@st.composite
def clusters(draw: st.DrawFn, workers: int) -> Cluster:
    """Links of any kind, some for a few workers only, swaps, and a host that takes its time."""
    medium: st.SearchStrategy[Medium] = st.sampled_from(["duplex", "half", "shared"])
    bandwidth, latency = st.sampled_from([0.5, 2.0, math.inf]), st.sampled_from([0.0, 0.25])
    link = st.builds(Link, bandwidth=bandwidth, latency=latency, medium=medium)
    links: list[Link] = []
    if draw(st.booleans()):
        few = draw(st.sets(st.integers(0, workers - 1), max_size=workers))
        links = [replace(draw(link), between=tuple(sorted(few))), draw(link)]
    return Cluster(
        links=tuple(links), swap=draw(st.none() | link), host_s=draw(st.sampled_from([0.0, 0.125])), memory_bytes=None
    )


@st.composite
def limits(draw: st.DrawFn, load: Fixed) -> tuple[float, ...]:
    """Enough for one micro-batch of every subnet, and maybe some more."""
    need = [0.1] * load.workers
    for pieces in load.stream:
        for j in range(load.micro_batches):
            for k in range(load.workers):
                need[k] = max(need[k], sum(piece.held_bytes for piece in pieces if piece.where(j) == k))
    return tuple(size * draw(st.sampled_from([1.0, 1.5, 3.0])) for size in need)


def overtaken() -> Drawn:
    """Subnets 0 and 1 are a bulk; 0 has `t` in its first run and steps late, 1 has it in its last and steps early.

    time      0   1   2   3   4   5   6   7
    worker 0  0F0 0F1 0F2 0B0 0B0 0B0 0B0 ...
    worker 1  .   1F0 1B0 1F1 1B1 .   .   1F2         run 1 of subnet 2 reads t: both gradients
    """
    early, late = ("t",), ()
    held = [
        tuple(Piece(r, pair[r], Cost(1.0, (4.0, 1.0)[r], 0.0, 0.0)) for r in range(2))
        for pair in ((early, late), (late, early), (late, early))
    ]
    setting = Setting(workers=2, micro_batches=1, bulk=2, in_flight=3)
    return Drawn("csp", setting, Fixed(2, 1, tuple(held)), SyncRule("bulk", 2), Shared("strict"), Cluster())
