"""Hashes of short real runs of `nlp.c3-small` under each rule on 1, 2 and 4 workers of this CPU. JSON lines.

python acceptance/schedules/rules.py [--steps 16]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path

from sennit.recipe import CheckpointRule, Placement, read_recipe
from sennit.runtime.request import Request
from sennit.runtime.train import train

RULES = {"csp": "csp", "bulk:4": "csp", "bulk-per-worker": "gpipe", "asp:stash": "pipedream"}
"""`sync` to the schedule of more than one worker."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=16, help="subnets, a multiple of 4")
    steps: int = parser.parse_args().steps
    recipe = read_recipe("recipes/nlp.c3-small.toml")
    recipe = replace(
        recipe, steps=steps, micro_batches=2, clip="layer:1.0", checkpoint=CheckpointRule(every=10**6),
        evaluate=replace(recipe.evaluate, every=0),
    )  # fmt: skip
    for sync, schedule in RULES.items():
        for workers in (1, 2, 4):
            with tempfile.TemporaryDirectory() as folder:
                placement = Placement(workers=workers, schedule=schedule if workers > 1 else "")
                request = Request(
                    recipe=replace(recipe, sync=sync), placement=placement, out=Path(folder) / "run", save=False
                )
                result = train(request)
            row = {"sync": sync, "workers": workers, "weights": result["weights_sha256"], "loss": result["last_loss"]}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
