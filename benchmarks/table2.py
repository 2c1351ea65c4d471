"""NASPipe's Table 2 for the seven spaces, the paper's figures beside ours.

    python benchmarks/table2.py --ende en_de_help.tsv.gz --cifar cifar10_jpeg.npz --out table2.json
                                [--spaces nlp.c3,cv.c3] [--batch 12288,64] [--steps 40] [--budget 11] [--device cpu]
                                [--gpus 2 [--least 2]] [--reference] [--draw-once]
    python benchmarks/table2.py --show FILE...          # the joined table of kept results, nothing runs

A row is a space on D devices, D = `--least` up to `--gpus`. It is trained for `--steps` subnets of `--batch` tokens
or images (default: the paper's 192 x 64, and 64), with real copies and steps, layers coming and going under
`--budget`. Of all but its first quarter are told: `exec`, seconds that tasks of a subnet take, bubbles left out;
`bubble`; and utilisation, busy time by wall time, summed over devices (Figure 7). Then batches are doubled, some
subnets each, until the device is full or `--limit` times the first is reached: the largest that fitted beside slots
that fill the budget, no task having been run again. `--reference` trains by the plain loop, too, and compares the
hashes; with `--gpus 0` by nothing else. A space that does not fit is a row that says why. With `--draw-once` all runs
of a space begin with the same pages of initial weights, which need room on the host beside a run's store. What the
paper's figures mean stands in `table2_rows.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from eviction import store_of
from given import kept, showing
from runs import commit, equal, free_bytes, or_why, prepare, run, timed_recipe
from speed.kept import Kept
from table2_rows import PAPER, table

from sennit.memory import cuda
from sennit.memory.store import HostStore
from sennit.recipe import Placement, Recipe
from sennit.runtime import gpu, pipeline
from sennit.runtime.budget import largest_shares
from sennit.runtime.fingerprint import fingerprint
from sennit.runtime.forked import in_child
from sennit.runtime.pipeline import Pipeline
from sennit.runtime.placing import plans_of
from sennit.space.names import unique_tensors
from sennit.supernet.optim import state_keys

SPACES = ("nlp.c3", "cv.c3", "cv.c2", "cv.c1", "nlp.c2", "nlp.c1", "nlp.c0")
"""Cheap ones first."""

MARGIN = 6 << 30
"""Bytes of the host beside the store: processes, CUDA, data."""

REAL_WORKER = gpu.gpu_worker

TRIAL = 5
"""Subnets of a trial: they fill the least budget that a run may have."""


def sizes(recipe: Recipe) -> dict[str, int]:
    """Of the supernet: parameters, their bytes, and bytes with optimizer state."""
    held = [t for t in unique_tensors(recipe.built.skeleton).values() if isinstance(t, torch.nn.Parameter)]
    nbytes = sum(t.nbytes for t in held)
    copies = 1 + len(state_keys(recipe.optimizer_name, recipe.optimizer_arguments))
    return {"parameters": sum(t.numel() for t in held), "bytes": nbytes, "with_state": nbytes * copies}


def resized(recipe: Recipe, batch: int) -> Recipe:
    """The recipe with other batches, and with the programs that have been recorded."""
    other = replace(recipe, batch_size=batch)
    kept = {k: v for k, v in vars(recipe.built).items() if k not in ("recipe", "batches", "example")}
    vars(other.built).update(kept)
    return other


def as_device_of(gib: float, less: int = 0) -> None:
    """Workers to come may take so much of a GPU (0: all of it) less so many bytes, and no more."""

    def limited(rank: int, *arguments: Any) -> Any:
        worker = REAL_WORKER(rank, *arguments)
        total = torch.cuda.get_device_properties(rank).total_memory
        torch.cuda.set_per_process_memory_fraction((min(gib * 2**30 or total, total) - less) / total, rank)
        return worker

    gpu.gpu_worker = limited


def trial(recipe: Recipe, placement: Placement, memory: float) -> dict[str, Any]:
    """Train some subnets of a store whose values and speed are of no matter: parameters of zero, not pinned.

    They get the least budget, which they fill, and the device lacks what the whole budget would take beside it.
    """
    store, built = store_of(recipe), recipe.built
    least = max(largest_shares(built, plans_of(built, placement, store.home), store)) + store.spare()
    filled = min(placement.budget_bytes, sum(store.size(g.name) for g in store.groups.all) // placement.workers)
    if (beside := filled - least) > 0:
        placement = replace(placement, budget=(least + 1024) / 2**30)
    as_device_of(memory, max(0, beside))
    pipeline.initialise = lambda *arguments: None  # type: ignore[assignment]
    HostStore.populate = lambda *arguments: None  # type: ignore[method-assign]
    cuda.pin = lambda *arguments: "a trial"
    with (
        tempfile.TemporaryDirectory() as folder,
        Pipeline(recipe, placement, Path(folder) / "access.jsonl") as engine,
    ):
        engine.run_to(TRIAL, lambda: False)
        again = engine.figures().get("tasks_run_again", 0)
    return {"why": f"{again} tasks were run again"} if again else {}


def largest(recipe: Recipe, placement: Placement, limit: int, memory: float) -> dict[str, Any]:
    """Double the batch until it does not fit."""
    tried: dict[int, str] = {}
    batch = recipe.batch_size
    while batch * 2 <= recipe.batch_size * limit:
        other = resized(recipe, batch * 2)
        why = in_child(lambda other=other: or_why(lambda: trial(other, placement, memory))).get("why", "")
        tried[batch * 2] = why or "fits"
        if why:
            break
        batch *= 2
    return {"largest": batch, "tried": tried}


def space_rows(name: str, recipe: Recipe, given: argparse.Namespace, keep: Callable[[dict[str, Any]], None]) -> None:
    row: dict[str, Any] = {"space": name, "batch": recipe.batch_size, **sizes(recipe)}
    Kept.give_up()  # of the space before
    need = row["with_state"] + MARGIN + (row["bytes"] if given.draw_once else 0)
    if need > (free := int(given.host * 2**30) or free_bytes()):
        beside = " and the weights of --draw-once" if given.draw_once else ""
        row["why"] = (
            f"the supernet with its state{beside} and {MARGIN >> 30} GiB are {need:,} bytes, the host has {free:,}"
        )
        keep(row)
        return
    rows: list[dict[str, Any]] = []
    drawn = Kept(recipe).nbytes if given.draw_once else 0
    for devices in range(given.least, given.gpus + 1):
        where = Placement(workers=devices, device=given.device, budget=given.budget, **given.placement)
        told = or_why(lambda where=where: {"prepare_s": prepare(recipe, where)})
        if "why" not in told:
            told.update(run(recipe, "pipeline", where, given.steps, warm=given.steps // 4, drawn=drawn))
        rows.append({**row, "devices": devices, **told})
        if "why" not in told and given.limit > 1:
            rows[-1].update(largest(recipe, where, given.limit, given.memory))
        keep(rows[-1])
    if given.reference and (not rows or any("why" not in r for r in rows)):
        plain = run(recipe, "plain", Placement(device=given.device), given.steps, drawn=drawn)
        keep({**row, "devices": 1, **plain, "equal": "why" not in plain and equal([*rows, plain])})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spaces", default=",".join(SPACES), help="names of recipes, joined by ','")
    parser.add_argument("--ende", help="TSV of the sentence pairs")
    parser.add_argument("--cifar", help="cifar10_jpeg.npz")
    parser.add_argument("--batch", default="12288,64", help="tokens and images; 0: the recipe's")
    parser.add_argument("--limit", type=int, default=8, help="largest batch, times the first; 1: none is tried")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--budget", type=float, default=11.0, help="GiB of each device for layers and their state")
    parser.add_argument("--memory", type=float, default=0.0, help="GiB of a device, less than it has")
    parser.add_argument(
        "--host", type=float, default=0.0, help="GiB of the host, if it tells less before they are used"
    )
    parser.add_argument("--least", type=int, default=1, help="devices of a space's first row")
    parser.add_argument("--gpus", type=int, default=1, help="devices of its last row")
    parser.add_argument("--placement", type=json.loads, default={}, help="more of it, as a JSON object")
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--draw-once", action="store_true")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--commit", help="of this code, where git cannot tell")
    parser.add_argument("--show", type=kept, nargs="+", action=showing(table), metavar="FILE", help="results to print")
    parser.add_argument("--out", required=True, type=Path)
    given = parser.parse_args()
    if not (1 <= given.least <= given.gpus or (given.reference and not given.gpus)):
        parser.error("--least 1 or more, and --gpus as many or more; or --gpus 0 with --reference")
    as_device_of(given.memory)
    result: dict[str, Any] = {
        "command": " ".join(sys.argv), "commit": given.commit or commit(),
        "fingerprint": in_child(lambda: fingerprint(given.device)), "steps": given.steps, "budget": given.budget,
        "memory": given.memory, "paper": {name: vars(row) for name, row in PAPER.items()}, "rows": [],
    }  # fmt: skip

    def keep(row: dict[str, Any]) -> None:
        result["rows"].append(row)
        print(json.dumps({k: str(v)[:200] for k, v in row.items() if k != "placement"}), flush=True)
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")

    tokens, images = map(int, given.batch.split(","))
    for name in given.spaces.split(","):
        language = name.startswith("nlp")
        data = (given.ende if language else given.cifar) if "small" not in name else None
        recipe = timed_recipe(f"recipes/{name}.toml", data, tokens if language else images)
        space_rows(name, recipe, given, keep)
    print()
    print("\n".join(table([result])))
    alike = [equal([row for row in result["rows"] if row["space"] == name]) for name in given.spaces.split(",")]
    return 0 if all(alike) and all(row.get("equal", True) for row in result["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
