"""What stays in the slots of a device: policies on the accesses of one recorded run.

    python benchmarks/eviction.py recipes/nlp.c3-small.toml [--subnets 60] [--workers 2] [--release layer] [--out FILE]

Trains once under the smallest of the budgets, so that no more is pinned at once than any budget holds, and rehearses
what it wrote down (`sennit.memory.rehearsal`) under each policy and budget. A budget is told in shares: what the
largest subnet takes of a worker, and a step beside it. `kept` are uses of a layer for which it had stayed since its
last use; `hits` are layers that were there when the forward that reads them became ready, each micro-batch counted;
`right` are fetches ahead that were used before they were given up. `stall` is what tasks wait for copies per subnet, if
fetching a layer takes the part `--copy` of the time of its forwards and backwards. `--out` gets a JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from given import positive, refusing, whole, writable

from sennit.memory.eviction import Key
from sennit.memory.rehearsal import Moment, Rehearsal, What, most_kept, uses
from sennit.memory.store import HostStore
from sennit.memory.tally import Tally
from sennit.memory.upcoming import Use
from sennit.plan.plan import Plans
from sennit.program.cut import cut
from sennit.recipe import CheckpointRule, EvaluateRule, Placement, Recipe, load_recipe
from sennit.runtime.budget import largest_shares
from sennit.runtime.coming import KNOWN
from sennit.runtime.placing import plans_of
from sennit.runtime.recorder import LET_IN
from sennit.runtime.refuse import check
from sennit.runtime.request import Request
from sennit.runtime.subnet import parts_of
from sennit.runtime.train import train
from sennit.space.initialise import build_on_meta, initialise
from sennit.trace.events import Trace, read_call
from sennit.trace.perfetto import MOST_SPANS

AHEAD = Placement().ahead
POLICIES: dict[str, dict[str, Any]] = {
    "none": {"evict": "lru", "ahead": 0},
    "lru": {"evict": "lru", "ahead": AHEAD},
    "next-use, none drawn": {"evict": "next-use", "ahead": AHEAD},
    "next-use, 8 drawn": {"evict": "next-use", "ahead": AHEAD, "known": 8},
    "next-use": {"evict": "next-use", "ahead": AHEAD, "known": KNOWN},
    "oracle, none ahead": {"evict": "oracle", "ahead": 0},
    "oracle": {"evict": "oracle", "ahead": AHEAD},
}
HORIZONS = (0, 1, 2, 4, 8, 16, 32)
SHARES = (1.5, 2.0, 3.0, 4.0, 6.0, 12.0)
AT = (1.5, 3.0)
"""Shares at which horizons are compared: little, and the paper's cache."""


@dataclass
class Record:
    """What each worker wrote down.

    Attributes:
        share: bytes of the largest subnet on any worker, and of a step.
        bytes_per_s: of copies.
    """

    moments: list[list[Moment]]
    sizes: dict[Key, int]
    share: int
    bytes_per_s: float
    subnets: int

    def under(self, budget: int, policy: dict[str, Any]) -> dict[str, Any]:
        """All workers together."""
        total = Tally()
        for moments in self.moments:
            total.add(Rehearsal(moments, self.sizes, budget, bytes_per_s=self.bytes_per_s, **policy).run())
        used = sum(uses(moments) for moments in self.moments)
        bound = sum(most_kept(moments, self.sizes, budget) for moments in self.moments)
        return {
            "shares": budget / self.share, "budget": budget, "kept": 1 - total.fetches / used, "bound": bound / used,
            **total.rates(), "stall_ms": 1e3 * total.stall_s / self.subnets, "uses": used, **asdict(total),
        }  # fmt: skip


def store_of(recipe: Recipe) -> HostStore:
    """Without values: they are drawn where they are needed."""
    built = recipe.built
    return HostStore(
        built.recordings.skeleton, built.groups, built.always[0] | built.always[1], recipe.sharing,
        recipe.optimizer_name, recipe.optimizer_arguments,
    )  # fmt: skip


def recorded(recipe: Recipe, placement: Placement, subnets: int, copy: float) -> Record:
    """Train, and read what was written down."""
    store, built = store_of(recipe), recipe.built
    initialise(build_on_meta(built.space_factory, recipe.space_args), recipe.seed, lambda name, like: store.home(name))
    plans = plans_of(built, placement, store.home)  # costs are measured once, so the run cuts in the same way
    share = max(largest_shares(built, plans, store)) + store.spare()
    with tempfile.TemporaryDirectory() as folder:
        placement = replace(placement, budget=min(SHARES) * share / 2**30)
        train(Request(recipe=recipe, placement=placement, out=Path(folder) / "run", steps=subnets, save=False))
        trace = read_call(Path(folder) / "run" / "trace.jsonl", MOST_SPANS)
    return record_of(recipe, placement, plans, store, trace, subnets, copy)


def record_of(
    recipe: Recipe, placement: Placement, plans: Plans, store: HostStore, trace: Trace, subnets: int, copy: float
) -> Record:
    """What a run under a budget wrote down, which holds no more pinned at once than any larger one.

    Args:
        copy: fetching a layer takes this part of the time of its forwards and backwards.
    """
    built = recipe.built
    share = max(largest_shares(built, plans, store)) + store.spare()
    reads: dict[Use, tuple[int, tuple[Key, ...]]] = {}
    feed = built.feed()
    for y in range(subnets):
        program = built.program(feed.draw())
        layers = placement.release == "layer"
        parts = parts_of(program, built.groups, lambda block, y=y: plans.stretch(y, 0, block), per_layer=layers)
        for run in cut(program, parts):
            groups = dict.fromkeys(group for step in run.steps for group in built.groups.of_step(step)[0])
            keys = tuple((group, 0) for group in groups if store.comes_and_goes(group))
            reads[y, run.index] = plans.worker(y, 0, run.steps[0].block), keys
    moments = [moments_of(trace, reads, worker) for worker in range(placement.workers)]
    sizes = {(g.name, 0): store.size(g.name) for g in store.groups.all if store.comes_and_goes(g.name)}
    busy = sum(span.end - span.start for span in trace.spans if span.kind in "FB")
    moved = sum(sizes[key] for _, keys in reads.values() for key in keys)
    return Record(moments, sizes, share, moved / (copy * busy), subnets)


def moments_of(trace: Trace, reads: dict[Use, tuple[int, tuple[Key, ...]]], worker: int) -> list[Moment]:
    """What one worker wrote down, in order of time."""
    found: list[tuple[float, int, Moment]] = []

    def add(rank: int, what: What, time: float, use: Use) -> None:
        found.append((time, rank, Moment(what, time, use, reads[use][1])))

    for counted in trace.counters:
        if counted.counter == LET_IN and counted.worker == worker:
            y = int(counted.value) - 1
            for use in sorted(use for use, (on, _) in reads.items() if use[0] == y and on == worker):
                add(0, "admit", counted.time, use)
    for span in trace.spans:
        if span.worker == worker and span.kind == "F":
            add(1, "ready", span.ready, (span.seq_id, span.run))
            add(2, "begin", span.start, (span.seq_id, span.run))
        elif span.worker == worker and span.kind == "B":
            add(3, "end", span.end, (span.seq_id, span.run))
    return [moment for _, _, moment in sorted(found, key=lambda item: item[:2])]


def table(rows: list[dict[str, Any]]) -> None:
    print("| shares | policy | ahead | kept | no policy above | hits | right | MB fetched per subnet | stall, ms |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        right = "" if row["right_rate"] is None else f"{row['right_rate']:.3f}"
        print(
            f"| {row['shares']:g} | {row['policy']} | {row['ahead_runs']} | {row['kept']:.3f} | {row['bound']:.3f} | "
            f"{row['hit_rate']:.3f} | {right} | {row['fetched_bytes'] / row['subnets'] / 1e6:.2f} | "
            f"{row['stall_ms']:.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("recipe")
    parser.add_argument("--subnets", type=whole(), default=60)
    parser.add_argument("--workers", type=whole(), default=2)
    parser.add_argument("--release", choices=["stage", "layer"], default="stage")
    parser.add_argument("--copy", type=positive, default=0.15)
    parser.add_argument("--out", type=writable)
    given = parser.parse_args()
    with refusing(parser):
        recipe = load_recipe(given.recipe)
        recipe = replace(recipe, checkpoint=CheckpointRule(every=given.subnets), evaluate=EvaluateRule())
        placement = Placement(workers=given.workers, release=given.release)
        check(Request(recipe=recipe, placement=placement, steps=given.subnets))
        if recipe.built.sampler().learning:
            parser.error(
                f"{given.recipe}: sampler = {recipe.sampler!r} draws by results, and here a stream is rehearsed"
            )
        record = recorded(recipe, placement, given.subnets, given.copy)
    cases = [(shares, name, policy) for shares in SHARES for name, policy in POLICIES.items()]
    cases += [
        (shares, "next-use", {**POLICIES["next-use"], "ahead": ahead})
        for shares in AT for ahead in HORIZONS if ahead != POLICIES["next-use"]["ahead"]
    ]  # fmt: skip
    rows = [
        {
            "recipe": given.recipe, "workers": given.workers, "release": given.release, "subnets": given.subnets,
            "copy": given.copy,
            "policy": name, "ahead_runs": policy["ahead"], **record.under(int(record.share * shares), policy),
            "shares": shares,
        }
        for shares, name, policy in cases
    ]  # fmt: skip
    table(rows)
    if given.out is not None:
        given.out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
