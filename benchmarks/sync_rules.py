"""BSP, ASP and CSP on equal terms, in one program: ms per subnet, bubble measured and simulated, last loss, hashes.

    python benchmarks/sync_rules.py --data en_de_help.tsv.gz --out results.json [--workers 2] [--steps 40]
    python benchmarks/sync_rules.py --device virtual --waits results.json --recipe recipes/nlp.c3-small.toml \
        --workers 4 --out virtual.json

Each rule with its papers' order, M = 1, 2, 4, on as many workers as asked; then, for M = 2, on one worker as well:
the hashes of `csp` and `bulk:4` must be those of the other number of workers, those of bulks per worker and of
asynchronous runs will not. The simulated bubble is that of the run's own stream and orders with the durations and
delays that the run recorded. `block_s` (recorded, seconds of forward and backward) and `busy_s` (of all tasks, by
kind) are what waits of virtual devices are made of: those of CSP on two devices, for each M. A virtual run has neither
losses nor hashes, and is simulated with the same waits and this host's
times beside them. Rows that stand in the file already are left alone.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from runs import HASHES, a_gpu_each, commit

from sennit.profile.quick import block_order
from sennit.profile.waits import FORMAT, Waits
from sennit.recipe import Placement, Recipe, read_recipe
from sennit.runtime import dryrun
from sennit.runtime.fingerprint import fingerprint
from sennit.runtime.forecast import RecipeLoad, forecast
from sennit.runtime.forked import in_child
from sennit.runtime.host_times import host_times
from sennit.runtime.placing import plans_of
from sennit.runtime.repeated import Recorded
from sennit.runtime.request import Request
from sennit.runtime.scheduling import settled
from sennit.runtime.train import train
from sennit.supernet.build import Built
from sennit.trace.events import read_call

RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "CSP": ("csp", {"schedule": "csp"}),
    "CSP, 3 chunks": ("csp", {"schedule": "csp", "chunks": 3}),
    "CSP, split": ("csp", {"schedule": "csp", "split": True}),
    "BSP (GPipe)": ("bulk-per-worker", {"schedule": "gpipe"}),
    "ASP (PipeDream)": ("asp:stash", {"schedule": "pipedream"}),
    "bulk:4": ("bulk:4", {"schedule": "csp"}),
}


PLACED = ("CSP", "BSP (GPipe)", "ASP (PipeDream)", "CSP, 3 chunks", "CSP, split")
"""Rules that are run with M = 1, 2, 4."""

BUILT: dict[int, Built] = {}
"""By M. What a recipe names, recorded once: the rule changes nothing of it."""

WARM_S = 8.0
"""Seconds that each worker spends on loading kernels before the timed part."""


def one(recipe: Recipe, rule: str, m: int, workers: int, given: argparse.Namespace) -> dict[str, Any]:
    sync, placed = RULES[rule]
    made = replace(recipe, sync=sync, micro_batches=m)
    placement = Placement(workers=workers, device=given.device, **(placed if workers > 1 else {}))
    a_gpu_each(placement)
    if given.waits:
        given.scratch.write_text(json.dumps(waits_of(Path(given.waits), m)))
        placement = replace(placement, waits=str(given.scratch))
    if m in BUILT:
        made.__dict__["built"] = copy.copy(BUILT[m])
        made.built.recipe = made
    BUILT[m] = made.built
    if given.device == "cuda":
        made.built.dry.add((given.device, True))  # each worker does it anyway
    begin = time.time()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        result = train(Request(recipe=made, placement=placement, out=out, steps=given.steps, save=False))
        spans = [span for span in read_call(out / "trace.jsonl").spans if span.kind in "FBIW"]
    row = {
        "rule": rule, "sync": sync, "micro_batches": m, "workers": workers, "steps": given.steps,
        "ms_per_subnet": 1e3 / result["subnets_per_s"], "bubble": result["bubble"], "last_loss": result["last_loss"],
        **{key: result[key] for key in HASHES}, "wall_s": time.time() - begin,
    }  # fmt: skip
    busy = {kind: sum(span.end - span.start for span in spans if span.kind == kind) for kind in "FBIW"}
    row["busy_s"], row["block_s"] = busy, dict(made.built.block_s)
    if workers > 1:
        held = settled(made, placement)
        blocks = block_order(made.built)
        told = Waits.read(given.scratch, blocks) if given.waits else Waits.measured(made.built.block_s)
        load = RecipeLoad(made, held, plans_of(made.built, held, waits=told), told, given.steps)
        if given.waits:
            host = host_times(made, workers, given.scratch)
            outcome = forecast(load, host.cluster)
            worked = sum(outcome.busy) + outcome.tasks * host.task
        else:
            outcome, worked = forecast(load, recorded=Recorded.of(spans)), sum(busy.values())
        makespan = outcome.makespan
        row["simulated_bubble"] = 1.0 - worked / (workers * makespan)
        row["makespan_s"], row["simulated_makespan_s"] = (
            max(s.end for s in spans) - min(s.start for s in spans),
            makespan,
        )
    print({k: str(v)[:12] for k, v in row.items()}, flush=True)
    return row


def waits_of(results: Path, m: int) -> dict[str, Any]:
    """Waits of a micro-batch: the shares of the blocks as recorded, the sums as tasks took in the run."""
    rows = json.loads(results.read_text())["rows"]
    row = next(r for r in rows if (r["rule"], r["micro_batches"], r["workers"]) == ("CSP", m, 2))
    whole, tasks = sum(row["block_s"].values()), row["steps"] * m
    part = {block: seconds / whole / tasks for block, seconds in row["block_s"].items()}
    forward, backward = row["busy_s"]["F"], row["busy_s"]["B"]
    blocks = {block: {"forward": forward * p, "backward": backward * p} for block, p in part.items()}
    return {"format": FORMAT, "blocks": blocks}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipe", default="recipes/nlp.c3.toml")
    parser.add_argument("--data", help="TSV of the ende data set")
    parser.add_argument("--out", required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--waits", help="results of a run on GPUs, for --device virtual")
    parser.add_argument("--on", type=int, help="rows on so many workers alone")
    parser.add_argument("--only", help="rules, with semicolons between them")
    parser.add_argument("--commit", help="of this code, where git cannot tell")
    given = parser.parse_args()
    given.scratch = Path(given.out).with_suffix(".waits")
    recipe = read_recipe(given.recipe)
    arguments = {**recipe.data_args, "path": str(Path(given.data).resolve())} if given.data else recipe.data_args
    end = replace(recipe.checkpoint, every=10**9)
    recipe = replace(
        recipe, data_args=arguments, checkpoint=end, evaluate=replace(recipe.evaluate, every=0), clip="layer:1.0"
    )
    rows: list[dict[str, Any]] = json.loads(Path(given.out).read_text())["rows"] if Path(given.out).exists() else []
    written = {
        "command": " ".join(sys.argv),
        "commit": given.commit or commit(),
        "fingerprint": in_child(lambda: fingerprint(given.device)),
        "rows": rows,
    }
    dryrun.BUDGET_S["cuda"] = WARM_S
    wanted = [(rule, m, given.workers) for m in (2, 4, 1) for rule in PLACED] + [("bulk:4", 2, given.workers)]
    wanted += [(rule, 2, 1) for rule in RULES if "," not in rule and not given.waits]
    wanted = [row for row in wanted if given.on is None or row[2] == given.on]
    done = {(row["rule"], row["micro_batches"], row["workers"]) for row in rows}
    wanted = [row for row in wanted if row not in done and (not given.only or row[0] in given.only.split(";"))]
    wanted.sort(key=lambda row: (2, 4, 1).index(row[1]))  # those with the same M share what was recorded
    for rule, m, workers in wanted:
        rows.append(one(recipe, rule, m, workers, given))
        Path(given.out).write_text(json.dumps(written, indent=1) + "\n")
    given.scratch.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
