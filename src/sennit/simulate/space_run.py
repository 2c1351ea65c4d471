"""A space under a schedule: simulated, bounded, and what each lever would bring."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sennit.errors import UserError
from sennit.schedule.chains import Chains
from sennit.schedule.order import Order
from sennit.schedule.policy import Policy, policy
from sennit.schedule.setting import Setting
from sennit.simulate.bounds import Bounds, bounds
from sennit.simulate.cluster import LONGEST_S, Cluster, Link
from sennit.simulate.engine import Simulation
from sennit.simulate.figures import figures
from sennit.simulate.outcome import Outcome, Watch
from sennit.simulate.space_load import SpaceLoad
from sennit.supernet.sync import Shared, Sync
from sennit.supernet.sync_rule import SyncRule

TRIED = (1, 2, 3, 4, 6, 8, 12)
"""Subnets in flight among which the best is looked for."""

TRIAL = 48
"""Subnets of a trial."""

WORTH = 0.001
"""Of a bubble: what is no reason to have more in flight."""


@dataclass(frozen=True, kw_only=True)
class SpaceRun:
    """What is simulated.

    Attributes:
        space: the stream and how it is cut. Who has which stage is the schedule's business.
        schedule: name of a policy.
        sync: the rule; none for the schedule's own.
        in_flight: most unfinished subnets; 0 for the schedule's own number.
        split: backward as I and W, where the schedule leaves it open.
        shared: policy for the groups that all subnets read.
        warmup: forwards under way, per worker.
        cluster: links, memory, host.
    """

    space: SpaceLoad
    schedule: str = "csp"
    sync: str = ""
    in_flight: int = 0
    split: bool = False
    shared: Shared = field(default_factory=lambda: Shared("strict"))
    warmup: tuple[int, ...] | None = None
    cluster: Cluster | None = None

    def __post_init__(self) -> None:
        if self.in_flight < 0:
            raise UserError(f"--in-flight must be at least 1, got {self.in_flight}")
        held = self.policy
        if self.rule.kind not in held.rules:
            raise UserError(
                f"--schedule {self.schedule} runs under {' or '.join(held.rules)}, not under --sync {self.sync}"
            )
        if self.shared.kind == "delayed" and self.rule.kind != "csp":
            raise UserError(
                f"--shared delayed:{self.shared.lag} belongs to --sync csp, not to {self.sync or held.sync}"
            )
        if self.split and held.split is False:
            raise UserError(f"--schedule {self.schedule} has whole backwards; leave out --split, or take zero-bubble")
        if self.space.chunks > 1 and not held.chunked:
            raise UserError(f"--schedule {self.schedule} fixes the number of chunks; leave out --chunks")
        if self.space.release not in held.releases:
            raise UserError(f"--schedule {self.schedule} knows stages only; leave out --release {self.space.release}")
        if self.space.joined > 1 and self.space.release == "stage":
            raise UserError(
                f"--joined {self.space.joined} joins layers; --schedule {self.schedule} runs whole stages here. Leave "
                "it out, or set --release layer where the schedule knows it"
            )
        if held.per_micro_batch and self.rule.kind == "asp":
            raise UserError(
                f"--schedule {self.schedule} has every stage on several workers, and --sync {self.sync} reads whatever "
                "is there, so each layer must stay with one. Use --sync csp or bulk:K"
            )
        if self.warmup and not held.warmed:
            raise UserError(f"--schedule {self.schedule} has no warm-up to set; 1f1b and pipedream have")
        replicas, wanted = self.space.replicas, held.stages(self.setting)
        if replicas > 1:
            self._refuse_replicas(held)
            wanted //= replicas
        stages = len(self.space.sizes) or wanted
        if stages != wanted:
            raise UserError(f"--sizes: {stages} sizes do not fit {wanted} stages")
        if self.cluster is not None:
            self.cluster.refuse_others(self.space.workers)
        self._refuse_slow()

    def _refuse_replicas(self, held: Policy) -> None:
        """What does not go with stages of several workers.

        Raises:
            UserError: a fixed list, or a rule without versions.
        """
        if "layer" not in held.releases:
            raise UserError(
                f"--replicas {self.space.replicas}: --schedule {self.schedule} is an order of stages with one worker "
                "each; leave out --replicas, or take --schedule csp"
            )
        if self.rule.kind == "asp":
            raise UserError(
                f"--replicas {self.space.replicas} has every stage on several workers, and --sync {self.sync} reads "
                "whatever is there, so each layer must stay with one. Use --sync csp or bulk:K"
            )

    def _refuse_slow(self) -> None:
        """What is moved must arrive some day.

        Raises:
            UserError: it takes too long, or there is no way for it.
        """
        space, cluster = self.space, self.cluster or Cluster()
        if space.swap_bytes and cluster.swap is None:
            raise UserError(
                f"--swap-bytes {space.swap_bytes:g} are fetched over the link to the host; describe it as [swap] in a "
                "--cluster, or leave out --swap-bytes"
            )
        for link in cluster.links:
            _refuse_slow_bytes("--out-bytes", space.out_bytes, link)
        if cluster.swap is not None:
            _refuse_slow_bytes("--swap-bytes", space.swap_bytes * space.blocks, cluster.swap)

    @cached_property
    def policy(self) -> Policy:
        return policy(self.schedule)

    @cached_property
    def rule(self) -> SyncRule:
        return SyncRule.parse(self.sync or self.policy.sync)

    @cached_property
    def setting(self) -> Setting:
        """What the orders are given, but for what is known at run time only."""
        space = self.space
        held = Setting(
            workers=space.workers, micro_batches=space.micro_batches, chunks=space.chunks,
            bulk=self.rule.bulk(space.workers), warmup=self.warmup, split=self.halves,
            asynchronous=self.rule.kind == "asp", end=lambda: space.subnets_wanted,
        )  # fmt: skip
        return replace(held, in_flight=self.in_flight or self.policy.in_flight(held))

    @cached_property
    def halves(self) -> bool:
        """Whether backwards are split."""
        return self.split if self.policy.split is None else self.policy.split

    @cached_property
    def load(self) -> SpaceLoad:
        """The stream, with stages on workers."""
        held, setting = self.policy, self.setting
        sizes = self.space.sizes
        if self.space.replicas > 1:
            return self.space
        if not sizes and held.stages(setting) != self.space.workers * self.space.chunks:
            chunks = max(1, held.stages(setting) // self.space.workers)
            sizes = tuple(map(len, replace(self.space, chunks=chunks).stages))
        return replace(self.space, sizes=sizes, spread=held.per_micro_batch, place=held.placed(setting))

    def simulate(self, watch: Watch | None = None) -> Outcome:
        """On the workers' own order objects."""
        orders: list[Order] = []
        chains = Chains(self.space.micro_batches, self.space.workers) if self.policy.chained else None
        simulation = Simulation(
            self.load, orders, self.make_sync(), self.setting.in_flight, split=self.halves, cluster=self.cluster,
            chains=chains, watch=watch,
        )  # fmt: skip
        setting = replace(self.setting, awaited=simulation.awaited, chains=chains)
        orders += [self.policy.order(worker, setting) for worker in range(setting.workers)]
        return simulation.run()

    def bounds(self) -> Bounds:
        """Under any order with as many subnets in flight."""
        return bounds(self.load, self.make_sync(), self.setting.in_flight, split=self.halves, cluster=self.cluster)

    def make_sync(self) -> Sync:
        return self.rule.make(self.space.always(), self.shared, self.space.workers)

    def levers(self) -> Iterator[tuple[str, SpaceRun]]:
        """Changes that could bring something, one at a time, in words that the command understands."""
        space, m, held = self.space, self.space.micro_batches, self.policy
        yield f"-M {2 * m}", replace(self, space=replace(space, micro_batches=2 * m))
        if held.split is None and not self.split:
            yield "--split", replace(self, split=True)
        if space.release == "stage" and "layer" in held.releases:
            yield "--release layer", replace(self, space=replace(space, release="layer"))
        if space.sampler == "uniform" and space.can_be_fair and self.rule.kind == "csp":
            yield "--sampler fair", replace(self, space=replace(space, sampler="fair"))
        if space.pinned and self.shared.kind == "strict" and self.rule.kind == "csp":
            yield "--shared delayed:2", replace(self, shared=Shared("delayed", 2))
        more = space.chunks + 1
        if held.chunked and not space.sizes and space.depth * more <= space.blocks:
            yield f"--chunks {more}", replace(self, space=replace(space, chunks=more))
        if self.rule.kind == "bulk" and not self.rule.behind:
            twice = f"bulk:{2 * self.setting.bulk}"
            yield f"--sync {twice}", replace(self, sync=twice, in_flight=2 * self.in_flight)
        if self.schedule != "csp":
            yield (
                "--schedule csp",
                SpaceRun(
                    space=replace(space, release="layer"), shared=self.shared, cluster=self.cluster, split=self.halves
                ),
            )
        n = self.setting.in_flight
        for other in sorted({max(1, n // 2), n + 1, 2 * n} - {n}):
            yield f"--in-flight {other}", replace(self, in_flight=other)

    @property
    def recipe(self) -> tuple[object, ...]:
        """What belongs to a recipe: if it differs, another supernet is trained."""
        return self.rule, self.shared, self.space.micro_batches, self.space.sampler

    def tried_levers(self) -> list[dict[str, Any]]:
        """What each change brings, best first, and whether it changes the recipe. What cannot be run (rounds that do
        not come out even) is left out."""
        found: list[dict[str, Any]] = []
        for name, run in self.levers():
            try:
                found.append({"change": name, "bubble": run.simulate().bubble, "recipe": run.recipe != self.recipe})
            except UserError:
                continue
        return sorted(found, key=lambda lever: lever["bubble"])

    def with_best_in_flight(self) -> SpaceRun:
        """The fewest in flight with which the first subnets of the stream wait as little as with any other number.

        A bubble that is `WORTH` smaller makes up for one more number tried; more in flight hold more activations.
        """
        space = replace(self.space, subnets_wanted=min(TRIAL, self.space.subnets_wanted))
        bubbles = {n: replace(self, space=space, in_flight=n).simulate().bubble for n in TRIED}
        return replace(self, in_flight=next(n for n in TRIED if bubbles[n] <= min(bubbles.values()) + WORTH))

    def report(self, *, with_levers: bool = True, watch: Watch | None = None) -> dict[str, Any]:
        """What `sennit simulate --json` gives."""
        outcome, bound = self.simulate(watch), self.bounds()
        space = self.load
        return {
            "schedule": self.schedule, "sync": self.sync or self.policy.sync, "release": space.release,
            "chunks": max(1, len(space.stages) // space.depth), "replicas": space.replicas, "split": self.halves,
            **figures(outcome, bound), "in_flight": self.setting.in_flight,
            "levers": self.tried_levers() if with_levers else [],
        }  # fmt: skip


def _refuse_slow_bytes(option: str, size: float, link: Link) -> None:
    if not size / link.bandwidth <= LONGEST_S:
        raise UserError(
            f"{option}: {size:g} bytes take {size / link.bandwidth:g} seconds at a bandwidth of {link.bandwidth:g}; at "
            f"most {LONGEST_S:g}. Give fewer bytes, or more bandwidth"
        )
