"""Workers on virtual devices against the simulator: makespans, and the order of every worker's tasks.

    python acceptance/schedules/virtual.py --out FOLDER [--workers 8] [--subnets 200] [--wait 0.03] [--only csp]

Each policy runs for real (processes, channels, versions) with waits for computation, and is simulated with the same
waits. Then the moments that were recorded are given to the simulator, which must put the tasks of each worker in the
recorded order (`sennit.runtime.replay`). One JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from pathlib import Path
from typing import Any

from sennit.profile.waits import Waits
from sennit.recipe import CheckpointRule, Placement, Recipe
from sennit.runtime.forecast import RecipeLoad, forecast
from sennit.runtime.placing import plans_of
from sennit.runtime.replay import replay
from sennit.runtime.request import Request
from sennit.runtime.scheduling import settled
from sennit.runtime.train import train
from sennit.trace.events import read_call

HERE = Path(__file__).parent
DEPTH = 16

POLICIES: dict[str, dict[str, Any]] = {
    "gpipe": {"sync": "bulk:8"},
    "1f1b": {"sync": "bulk:8"},
    "interleaved": {"sync": "bulk:8", "chunks": 2},
    "zero-bubble": {"sync": "bulk:8"},
    "zbv": {"sync": "bulk:8"},
    "chimera": {"sync": "bulk:8"},
    "pipedream": {"sync": "asp:stash"},
    "tap": {"sync": "asp:none"},
    "naspipe": {"sync": "csp"},
    "csp": {"sync": "csp", "chunks": 2, "split": True, "release": "layer"},
}


def waits_file(path: Path, mean: float) -> None:
    """Seconds per block, no two alike: the order of tasks is then no matter of ties."""
    draw = random.Random(1)
    rows: dict[str, dict[str, float]] = {}
    for i in range(DEPTH):
        forward, weight, inputs = (round(mean * draw.uniform(0.8, 1.2), 5) for _ in range(3))
        rows[f"blocks.{i}"] = {"forward": forward, "backward": weight + inputs, "input": inputs, "weight": weight}
    path.write_text(json.dumps({"format": "sennit.waits/1", "blocks": rows}))


def one(name: str, args: argparse.Namespace, waits: Path) -> dict[str, Any]:
    settings = dict(POLICIES[name])
    free = settings["sync"] == "asp:none"  # it runs whatever is ready
    recipe = Recipe(
        space="strand.py:Strand", data="strand.py:Points", batch_size=8, steps=args.subnets, micro_batches=2,
        sync=settings.pop("sync"), base=str(HERE), space_args={"depth": DEPTH}, optimizer={"name": "sgd"},
        checkpoint=CheckpointRule(every=10**6), allow_nondeterministic=free,
    )  # fmt: skip
    placement = Placement(workers=args.workers, device="virtual", waits=str(waits), schedule=name, **settings)
    folder = args.out / name
    train(Request(recipe=recipe, placement=placement, out=folder))
    trace = read_call(folder / "trace.jsonl")
    spans = [span for span in trace.spans if span.kind in "FBIW"]
    real = max(s.end for s in spans) - min(s.start for s in spans)

    held = settled(recipe, placement)
    told = Waits.read(waits, [f"blocks.{i}" for i in range(DEPTH)])
    load = RecipeLoad(recipe, held, plans_of(recipe.built, held, waits=told), told, args.subnets)
    outcome = forecast(load)
    same, tasks = replay(load, spans, trace.counters)
    shutil.rmtree(folder)
    return {
        "policy": name, "subnets": args.subnets, "workers": args.workers, "tasks": tasks, "makespan": real,
        "simulated": outcome.makespan, "ratio": real / outcome.makespan, "same_order": same / tasks,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--subnets", type=int, default=200)
    parser.add_argument("--wait", type=float, default=0.03, help="seconds of a block's forward, on average")
    parser.add_argument("--only", choices=POLICIES)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    waits = args.out / "waits.json"
    waits_file(waits, args.wait)
    for name in [args.only] if args.only else POLICIES:
        print(json.dumps(one(name, args, waits)), flush=True)


if __name__ == "__main__":
    main()
