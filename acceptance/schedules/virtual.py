"""Workers on virtual devices against the simulator: makespans, and the order of every worker's tasks.

    python acceptance/schedules/virtual.py --out FOLDER [--workers 8] [--subnets 200] [--wait 0.03] [--only csp]

Each policy runs for real (processes, channels, versions) with waits for computation, and is simulated with the same
waits, on a host whose times for starting a task and for a message are measured first, in a short run of another recipe
(`sennit.runtime.host_times`). `ratio_free` is that over a simulation in which both cost nothing. Then the moments
that were recorded are given to the simulator, which must put the tasks of each worker in the recorded order
(`sennit.runtime.replay`). One JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sennit.profile.waits import Waits
from sennit.recipe import CheckpointRule, Placement, Recipe
from sennit.runtime.forecast import RecipeLoad, forecast
from sennit.runtime.host_times import HostTimes, host_times
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


def strand(sync: str, subnets: int) -> Recipe:
    return Recipe(
        space="strand.py:Strand", data="strand.py:Points", batch_size=8, steps=subnets, micro_batches=2, sync=sync,
        base=str(HERE), space_args={"depth": DEPTH}, optimizer={"name": "sgd"},
        checkpoint=CheckpointRule(every=10**6), allow_nondeterministic=sync == "asp:none",  # it runs what is ready
    )  # fmt: skip


def one(name: str, args: argparse.Namespace, waits: Path, host: HostTimes) -> dict[str, Any]:
    settings = dict(POLICIES[name])
    recipe = strand(settings.pop("sync"), args.subnets)
    placement = Placement(workers=args.workers, device="virtual", waits=str(waits), schedule=name, **settings)
    folder = args.out / name
    train(Request(recipe=recipe, placement=placement, out=folder))
    trace = read_call(folder / "trace.jsonl")
    spans = [span for span in trace.spans if span.kind in "FBIW"]
    real = max(s.end for s in spans) - min(s.start for s in spans)

    held = settled(recipe, placement)
    told = Waits.read(waits, [f"blocks.{i}" for i in range(DEPTH)])
    load = RecipeLoad(recipe, held, plans_of(recipe.built, held, waits=told), told, args.subnets)
    free, outcome = forecast(load), forecast(load, host.cluster)
    same, tasks = replay(load, spans, trace.counters)
    shutil.rmtree(folder)
    return {
        "policy": name, "subnets": args.subnets, "workers": args.workers, "tasks": tasks, "makespan": real,
        "simulated": outcome.makespan, "ratio": real / outcome.makespan, "ratio_free": real / free.makespan,
        "same_order": same / tasks, "host": asdict(host),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--subnets", type=int, default=200)
    parser.add_argument("--wait", type=float, default=0.02, help="seconds of a block's forward, on average")
    parser.add_argument("--only", choices=POLICIES)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    waits = args.out / "waits.json"
    waits_file(waits, args.wait)
    host = host_times(strand("bulk:8", 8), args.workers, waits)
    for name in [args.only] if args.only else POLICIES:
        print(json.dumps(one(name, args, waits, host)), flush=True)


if __name__ == "__main__":
    main()
