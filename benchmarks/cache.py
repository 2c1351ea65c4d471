"""A supernet that is larger than the budget of its device: hits, bytes and stalls by policy, beside all-resident.

    python benchmarks/cache.py --data en_de_help.tsv.gz --out cache.json [--recipe recipes/nlp.c1.toml] [--budget 11]
                               [--steps 40] [--only "next-use;none;plain"] [--device cpu]

Trains the recipe under the budget with each policy of slots, with nothing leaving the device if that fits, and as its
oracle by `--engine plain --offload`: all run, to the same hashes, or exit code 1. What the run under `next-use` wrote
down is then rehearsed (`benchmarks/eviction.py`) under the same policies and Belady's rule, which knows what comes.
`--device cpu` rehearses all of it. Stalls are what tasks waited for layers, as a part of the workers' time.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from eviction import POLICIES, record_of, store_of
from runs import commit, equal, prepare, run, timed_recipe

from sennit.recipe import Placement
from sennit.runtime.fingerprint import fingerprint
from sennit.runtime.forked import in_child
from sennit.runtime.placing import plans_of
from sennit.trace.events import read_call
from sennit.trace.perfetto import MOST_SPANS

REHEARSED = ("none", "lru", "next-use", "oracle, none ahead", "oracle")


def cases(placement: Placement) -> dict[str, tuple[Any, Placement, bool]]:
    """Name to engine, placement and whether the plain loop keeps the supernet on the host."""
    bare = Placement(device=placement.device)
    return {
        "next-use": ("pipeline", placement, False),
        "none": ("pipeline", replace(placement, evict="lru", ahead=0), False),
        "plain": ("plain", bare, True),
        "lru": ("pipeline", replace(placement, evict="lru"), False),
        "all resident": ("pipeline", replace(placement, budget=0.0), False),
    }


def figures(row: dict[str, Any], workers: int) -> None:
    """What the table and the thresholds need."""
    slots = row.get("slots")
    if "why" in row or slots is None:
        return
    row["fetched_per_subnet"] = slots["fetched_bytes"] / row["steps"]
    row["written_per_subnet"] = slots["written_bytes"] / row["steps"]
    row["stall_share"] = slots["stall_s"] / (workers * row["seconds_training"])


def table(rows: list[dict[str, Any]], rehearsed: list[dict[str, Any]]) -> None:
    print("| run | hits | right | MB fetched per subnet | MB written | stall share | ms per subnet | set-up, s |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        if "why" in row:
            print(f"| {row['name']} | does not run: {row['why'].splitlines()[0][:300]} |")
            continue
        slots = row.get("slots") or {}
        rates = [f"{slots[k]:.4f}" if slots.get(k) is not None else "–" for k in ("hit_rate", "right_rate")]
        moved = [f"{row[k] / 1e6:.1f}" if k in row else "–" for k in ("fetched_per_subnet", "written_per_subnet")]
        stall = f"{row['stall_share']:.4f}" if "stall_share" in row else "–"
        cells = [row["name"], *rates, *moved, stall, f"{row['ms_per_subnet']:.1f}", f"{row['setup_s']:.0f}"]
        print(f"| {' | '.join(cells)} |")
    for row in rehearsed:
        right = "–" if row["right_rate"] is None else f"{row['right_rate']:.4f}"
        print(
            f"| rehearsed: {row['policy']} | {row['hit_rate']:.4f} | {right} | "
            f"{row['fetched_bytes'] / row['subnets'] / 1e6:.1f} | {row['written_bytes'] / row['subnets'] / 1e6:.1f} | "
            f"{row['stall_ms']:.2f} ms | | |"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="recipes/nlp.c1.toml")
    parser.add_argument("--data", help="file of the data set")
    parser.add_argument("--batch", type=int, default=0, help="tokens or images, other than the recipe's")
    parser.add_argument("--budget", type=float, default=11.0, help="GiB of each device")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--placement", type=json.loads, default={}, help="more of it, as a JSON object")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--only", default="", help="names of runs, joined by ';'")
    parser.add_argument("--bandwidth", type=float, default=50e9, help="bytes a second of copies, for the rehearsal")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--commit", help="of this code, where git cannot tell")
    parser.add_argument("--out", required=True, type=Path)
    given = parser.parse_args()
    recipe = timed_recipe(given.recipe, given.data, given.batch)
    placement = Placement(
        workers=given.workers, device=given.device, budget=given.budget, **given.placement
    )  # fmt: skip
    result: dict[str, Any] = {
        "command": " ".join(sys.argv), "commit": given.commit or commit(), "recipe": given.recipe,
        "fingerprint": in_child(lambda: fingerprint(given.device)), "steps": given.steps, "budget": given.budget,
        "batch": recipe.batch_size, "prepare_s": prepare(recipe, placement), "runs": [], "rehearsed": [],
    }  # fmt: skip
    store = store_of(recipe)
    plans = plans_of(recipe.built, placement, store.home)
    layers = [group.name for group in store.groups.all if store.comes_and_goes(group.name)]
    result["bytes"] = sum(store.size(name) for name in layers)
    result["times the budgets"] = result["bytes"] / (placement.budget_bytes * placement.workers)

    def keep() -> None:
        failed = [row["name"] for row in result["runs"] if "why" in row and row["name"] != "all resident"]
        result["equal"] = equal(result["runs"]) and not failed
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")

    chosen = given.only.split(";") if given.only else list(cases(placement))
    with tempfile.TemporaryDirectory() as folder:
        spans = Path(folder) / "trace.jsonl"
        for name in chosen:
            engine, where, offload = cases(placement)[name]
            wanted = spans if name == "next-use" else None
            row = {"name": name, **run(recipe, engine, where, given.steps, offload, given.steps // 4, wanted)}
            figures(row, placement.workers)
            result["runs"].append(row)
            print(json.dumps({k: str(v)[:300] for k, v in row.items() if k != "placement"}), flush=True)
            keep()
        if spans.exists():
            trace = read_call(spans, MOST_SPANS)
            record = record_of(recipe, placement, plans, store, trace, given.steps, copy=1.0)
            record.bytes_per_s = given.bandwidth
            for name in REHEARSED:
                told = record.under(placement.budget_bytes, POLICIES[name])
                result["rehearsed"].append({"policy": name, "subnets": given.steps, **told})
    keep()
    print(f"\nlayers with their state: {result['bytes']:,} bytes, {result['times the budgets']:.2f} x the budgets\n")
    table(result["runs"], result["rehearsed"])
    print(f"\nhashes equal: {result['equal']}")
    return 0 if result["equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
