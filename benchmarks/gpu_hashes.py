"""The same bits on one and two GPUs: `nlp.c3` full width, 3,840-token batches.

    python benchmarks/gpu_hashes.py --data en_de_help.tsv.gz --out results.json [--gpus 2] [--steps 100]

Trains the recipe with the pipeline on 1 .. N GPUs and with the plain loop on one, and writes hashes, ms per
subnet and the fingerprint. Exits 1 if any hash differs. On CPU (`--device cpu`) it rehearses the same.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from sennit.recipe import Placement, Recipe, read_recipe
from sennit.runtime.fingerprint import fingerprint
from sennit.runtime.request import Request
from sennit.runtime.train import train

HASHES = ("weights_sha256", "optimizer_sha256", "losses_sha256")


def commit() -> str:
    """The commit of this checkout, if it is one."""
    asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "unknown"


def one(recipe: Recipe, engine: str, workers: int, device: str, steps: int) -> dict[str, Any]:
    transport = "nccl" if device == "cuda" else "auto"  # a GPU each, or times would mean nothing
    placement = Placement(workers=workers, device=device, transport=transport)
    begin = time.time()
    with tempfile.TemporaryDirectory() as folder:
        request = Request(
            recipe=recipe, engine=engine, placement=placement,  # type: ignore[arg-type]
            out=Path(folder) / "run", steps=steps, save=False,
        )  # fmt: skip
        result = train(request)
    result.pop("out")
    result["ms_per_subnet"] = 1e3 / result["subnets_per_s"]
    result["wall_s"] = time.time() - begin
    print(engine, workers, device, {k: str(v)[:12] for k, v in result.items()}, flush=True)
    return result


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipe", default="recipes/nlp.c3.toml")
    parser.add_argument("--data", help="TSV of the ende data set")
    parser.add_argument("--out", required=True)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--commit", help="of this code, where git cannot tell")
    given = parser.parse_args()
    recipe = read_recipe(given.recipe)
    arguments = {**recipe.data_args, "path": str(Path(given.data).resolve())} if given.data else recipe.data_args
    end = replace(recipe.checkpoint, every=10**9)  # the timed part has no cuts
    recipe = replace(recipe, data_args=arguments, checkpoint=end, evaluate=replace(recipe.evaluate, every=0))
    runs = [one(recipe, "pipeline", n, given.device, given.steps) for n in range(1, given.gpus + 1)]
    runs.append(one(recipe, "plain", 1, given.device, given.steps))
    equal = len({tuple(r[h] for h in HASHES) for r in runs}) == 1
    written = {
        "command": " ".join(sys.argv),
        "commit": given.commit or commit(),
        "fingerprint": fingerprint(given.device),
        "equal": equal,
        "runs": runs,
    }
    Path(given.out).write_text(json.dumps(written, indent=1) + "\n")
    print("hashes equal:", equal)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
