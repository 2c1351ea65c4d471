"""The same bits on one and two GPUs: `nlp.c3` full width, 3,840-token batches.

    python benchmarks/gpu_hashes.py --data en_de_help.tsv.gz --out results.json [--gpus 2] [--steps 100]
                                    [--recipe recipes/nlp.c0.toml --runs "pipeline 1" --join earlier.json]
                                    [--draw-once]

Trains the recipe with the pipeline on 1 .. N GPUs and with the plain loop on one, and writes hashes, ms per
subnet and the fingerprint. Exits 1 if any hash differs. On CPU (`--device cpu`) it rehearses the same. Where all runs
together take too long, each is a command of its own (`--runs`), which takes over what earlier ones wrote (`--join`).
With `--draw-once` all runs begin with the same pages of initial weights, which need room on the host beside a run's
store.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from runs import a_gpu_each, commit, equal, prepare, run, timed_recipe
from speed.kept import Kept

from sennit.recipe import Placement
from sennit.runtime.fingerprint import different, fingerprint
from sennit.runtime.forked import in_child

SAME = ("commit", "recipe", "identity", "steps")
"""Facts that results must share to be compared."""


def joined(path: Path | None, facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Runs of an earlier command on the same code, recipe and machine."""
    if path is None:
        return []
    held = json.loads(path.read_text(encoding="utf-8"))
    other = [f"{key}: {held.get(key)!r} against {facts[key]!r}" for key in SAME if held.get(key) != facts[key]]
    other += different(held["fingerprint"], facts["fingerprint"])
    if other:
        raise SystemExit(f"--join {path}: results of another run ({'; '.join(other)}); leave it out")
    return held["runs"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="recipes/nlp.c3.toml")
    parser.add_argument("--data", help="TSV of the ende data set")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--runs", default="", help='"pipeline 1;pipeline 2;plain 1", or some of them')
    parser.add_argument("--placement", type=json.loads, default={}, help="of the pipeline, as a JSON object")
    parser.add_argument("--join", type=Path)
    parser.add_argument("--draw-once", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--commit", help="of this code, where git cannot tell")
    given = parser.parse_args()
    recipe = timed_recipe(given.recipe, given.data)
    facts: dict[str, Any] = {
        "command": " ".join(sys.argv), "commit": given.commit or commit(), "recipe": given.recipe,
        "identity": recipe.identity(), "steps": given.steps, "fingerprint": in_child(lambda: fingerprint(given.device)),
    }  # fmt: skip
    runs = joined(given.join, facts)
    facts["prepare_s"] = prepare(recipe, Placement(device=given.device))
    drawn = Kept(recipe).nbytes if given.draw_once else 0
    chosen = given.runs.split(";") if given.runs else [f"pipeline {n + 1}" for n in range(given.gpus)] + ["plain 1"]
    good = True
    for engine, workers in map(str.split, chosen):
        more = given.placement if engine == "pipeline" else {}
        placement = Placement(workers=int(workers), device=given.device, **more)
        a_gpu_each(placement)
        runs.append(run(recipe, "plain" if engine == "plain" else "pipeline", placement, given.steps, drawn=drawn))
        good = equal(runs) and all("why" not in row for row in runs)
        print(json.dumps({k: str(v)[:100] for k, v in runs[-1].items() if k != "placement"}), flush=True)
        written = {**facts, "equal": good, "runs": runs}
        given.out.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    print("hashes equal:", good)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
