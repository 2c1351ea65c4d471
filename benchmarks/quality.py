"""Quality for time: the held-out score of a supernet against wall time and subnets, under CSP, BSP and ASP.

    python benchmarks/quality.py --recipe recipes/digits.toml --out digits.jsonl [--seeds 0,1,2] [--workers 1,2,4]

For each rule, seed and number of workers one line of JSON: the curve of (subnets, seconds, mean, best) over the
evaluations, the hash of the weights, and what the network searched from that supernet scores on the test split with the
supernet's weights. Seconds are from the first subnet on, evaluations left out. Lines that stand in the file already
are left alone, so it can be stopped and goes on. (NASPipe, Figure 4 and Table 3.)
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from sennit.recipe import CheckpointRule, Placement, Recipe, read_recipe
from sennit.runtime.forked import in_child
from sennit.runtime.request import Progress, Request

RULES: dict[str, tuple[str, str]] = {
    "CSP": ("csp", "csp"), "BSP": ("bulk-per-worker", "gpipe"), "ASP": ("asp:stash", "pipedream"),
}  # fmt: skip
"""Name to `sync` and schedule."""


class Curve:
    """Listens to a run: what was reached when."""

    def __init__(self) -> None:
        self.points: list[dict[str, Any]] = []
        self.begin: float | None = None
        self.apart = 0.0
        """Seconds of evaluations, which every rule has."""
        self.last = 0.0

    def tell(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.event == "subnet":
            self.begin = self.begin or now
            self.last = now
        elif progress.event == "evaluation" and self.begin is not None:
            self.apart += now - self.last
            point = {key: progress.evaluation.get(key) for key in ("mean", "best")}
            self.points.append({"subnets": progress.done, "seconds": now - self.begin - self.apart, **point})


def one(recipe: Recipe, rule: str, workers: int, budget: int) -> dict[str, Any]:
    """Train, search, and score what was found; in a process of its own."""
    from sennit.explore.evaluate import Evaluation, evaluate
    from sennit.explore.search import search
    from sennit.runtime.load import load_run
    from sennit.runtime.train import train

    sync, schedule = RULES[rule]
    made = replace(recipe, sync=sync)
    curve = Curve()
    with tempfile.TemporaryDirectory() as folder:
        placement = Placement(workers=workers, schedule=schedule if workers > 1 else "")
        out = Path(folder) / "run"
        result = train(Request(recipe=made, placement=placement, out=out), curve.tell)
        run = load_run(out)
        model = run.model()
        quick = Evaluation(score=False)  # translations take longer than training
        found = search(run.recipe, model, Path(folder) / "search", seed=0, budget=budget, evaluation=quick)
        test = evaluate(run.recipe, model, found.best.arch, replace(quick, split="test"))
    return {
        "rule": rule, "sync": sync, "workers": workers, "seed": recipe.seed, "steps": result["steps"],
        "weights_sha256": result["weights_sha256"], "subnets_per_s": result["subnets_per_s"], "curve": curve.points,
        "searched": found.best.arch, "valid": found.best.metrics, "test": test,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipe", default="recipes/digits.toml")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--rules", default=",".join(RULES))
    parser.add_argument("--steps", type=int, help="subnets; a multiple of every number of workers")
    parser.add_argument("--every", type=int, default=100, help="subnets between two evaluations")
    parser.add_argument("--budget", type=int, default=100, help="evaluations of a search")
    given = parser.parse_args()
    base = read_recipe(given.recipe)
    # a checkpoint drains the pipeline, so all rules have those of the evaluations and no others
    base = replace(
        base, clip="layer:1.0", steps=given.steps or base.steps, checkpoint=CheckpointRule(every=given.every),
        evaluate=replace(base.evaluate, every=given.every),
    )  # fmt: skip
    held = given.out.read_text().splitlines() if given.out.exists() else []
    done = {(row["rule"], row["workers"], row["seed"]) for row in map(json.loads, held)}
    with given.out.open("a") as file:
        for seed in (int(s) for s in given.seeds.split(",")):
            for workers in (int(n) for n in given.workers.split(",")):
                for rule in given.rules.split(","):
                    if (rule, workers, seed) in done:
                        continue
                    recipe = replace(base, seed=seed)
                    row = in_child(lambda r=recipe, u=rule, w=workers: one(r, u, w, given.budget))
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                    last = row["curve"][-1] if row["curve"] else {}
                    print(seed, workers, rule, row["weights_sha256"][:8], last, row["test"], flush=True)


if __name__ == "__main__":
    main()
