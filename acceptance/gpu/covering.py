"""Rows of `covering.sh`: adds a line to LOG for each row that has run, and writes OUT/figures.json.

A row is a recipe (workload, precision, dropout, clip) and a placement (executor, budget, plan, workers, split). Rows of
one recipe share one run of the plain loop on the same device.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # for acceptance, tests.executor

import torch
from acceptance.engine.compared import cuts_file, in_parallel, run, shortened, told, verdict
from acceptance.engine.pairs import Pairwise, Row
from acceptance.gpu.kinds import Noted, kinds_met, kinds_of, noted, total

from sennit.memory.store import HostStore
from sennit.plan.plan import Plans
from sennit.recipe import Placement, Recipe, read_recipe
from sennit.runtime.budget import largest_shares
from sennit.runtime.fingerprint import fingerprint
from sennit.runtime.forked import in_child
from sennit.runtime.placing import plans_of
from sennit.runtime.profiling import measure
from sennit.runtime.scheduling import settled
from sennit.runtime.share import Parts

FACTORS: dict[str, list[Any]] = {
    "workload": ["nlp.c3", "cv.c1", "digits"],
    "executor": ["eager", "graphs", "kept"],
    "budget": ["none", "1.5", "3"],
    "plan": ["balanced", "cuts", "profile", "chunks", "replicas"],
    "workers": [1, 2, 4],
    "precision": ["fp32", "tf32", "bf16"],
    "dropout": [0.0, 0.1],
    "split": [False, True],
    "clip": ["global:1.0", "layer:1.0"],
}
RECIPE = ("workload", "precision", "dropout", "clip")
COST = {"nlp.c3": 2.0, "cv.c1": 3.0, "digits": 1.0}
"""Rough, to start long rows first."""
M = 2


def void(row: dict[str, Any]) -> dict[str, str]:
    """One worker has nothing to cut, so there the plan meets only that."""
    return {"plan": "workers"} if row["workers"] == 1 else {}


# -- a row


def recipe_of(row: dict[str, Any], steps: int) -> Recipe:
    """Small widths of the ready spaces with all of their kinds of candidates: `nlp.c3` has 24 and 24, `cv.c1` 48 (the
    first 12 are those of `cv.c3`), `digits` 4."""
    name, dropout = row["workload"], row["dropout"]
    if name == "nlp.c3":
        made = read_recipe("recipes/nlp.c3-small.toml")
        space = {"d": 64, "vocab": 80, "layers": 4, "dropout": dropout, "max_length": 64}
        data = {"lengths": [8, 16], "rows_multiple": M}
        made = replace(made, batch_size=128, space_args=space, data_args=data)
    elif name == "cv.c1":
        made = read_recipe("recipes/cv.c3-small.toml")
        space = {"width": 8, "blocks": 8, "dropout": dropout}
        made = replace(made, space="images.py:Images", base=str(Path(__file__).parent), batch_size=8, space_args=space)
    else:
        made = read_recipe("recipes/digits.toml")
        made = replace(made, batch_size=16, space_args={**made.space_args, "dropout": dropout})
    return shortened(made, steps, micro_batches=M, precision=row["precision"], clip=row["clip"])


def placement_of(row: dict[str, Any], recipe: Recipe, device: str, folder: Path) -> dict[str, Any]:
    """Arguments of `Placement`; files lie in `folder`."""
    placed: dict[str, Any] = {"workers": row["workers"], "split": row["split"], "device": device}
    if device == "cuda":
        placed["executor"] = "graphs" if row["executor"] == "kept" else row["executor"]
        if row["executor"] == "kept":
            placed["activations"] = "keep"
    if row["plan"] == "chunks":
        placed |= {"chunks": 2, "release": "layer"}
    elif row["plan"] == "replicas" and row["workers"] > 1:
        placed["replicas"] = M
    elif row["plan"] == "cuts":
        placed["plan"] = cuts_file(recipe, row["workers"], folder / "cuts.json")
    elif row["plan"] == "profile":
        placed["plan"] = str(folder / "profile.json")
        if not Path(placed["plan"]).exists():
            in_child(lambda: measure(recipe, torch.device(device), each_s=0.002)).write(Path(placed["plan"]))
    if row["budget"] != "none":
        placed["budget"] = float(row["budget"]) * least_budget(recipe, Placement(**placed))
    return placed


def least_budget(recipe: Recipe, placement: Placement) -> float:
    """GiB that hold what any subnet of the run needs of any worker."""
    built = recipe.built
    host = HostStore(
        built.recordings.skeleton, built.groups, built.always[0] | built.always[1], recipe.sharing,
        recipe.optimizer_name, recipe.optimizer_arguments,
    )  # fmt: skip
    plans = plans_of(built, settled(recipe, placement), host.home)  # what it measures, the run will not measure again
    shares = largest_shares(built, plans, host) if plans.static else shares_of_stream(recipe, plans, host)
    return (max(shares) + host.spare()) / 2**30


def shares_of_stream(recipe: Recipe, plans: Plans, host: HostStore) -> list[int]:
    """Bytes that each subnet needs of each worker, where each subnet is cut in its own way."""
    built, feed = recipe.built, recipe.built.feed()
    feed.replay(0, [])
    shares: list[int] = []
    for y in range(recipe.steps):
        program = built.program(feed.draw())
        plans.tell(y, program.places)
        held: dict[int, set[str]] = {}
        for step in program.steps:
            held.setdefault(plans.worker(y, 0, step.block), set()).update(built.groups.of_step(step)[0])
        shares += [sum(host.size(g) for g in groups if host.comes_and_goes(g)) for groups in held.values()]
    return shares


def one(row: dict[str, Any], recipe: Recipe, device: str, folder: Path) -> dict[str, Any]:
    """The pipeline's run of a row, with what it has met."""
    notes, kinds = folder / "notes", kinds_of(recipe.built)
    shutil.rmtree(notes, ignore_errors=True)
    notes.mkdir()
    capturing = None
    if row["executor"] != "eager" and device == "cpu":
        from tests.executor.host_graphs import HostGraphs

        capturing = HostGraphs
    parts = Parts(executor=lambda inner: Noted(inner, notes), capturing=capturing)
    placed = placement_of(row, recipe, device, folder)
    found = run(recipe, folder / "pipeline", "pipeline", parts, **placed)
    more = {key: found[key] for key in ("pinned", "tasks_run_again") if key in found}
    if "slots" in found and "budget" in placed:
        more |= {"budget_bytes": int(placed["budget"] * 2**30), "fetches": found["slots"]["fetches"]}
    met = sorted(kinds_met(recipe.built, folder / "pipeline" / "losses.jsonl"))
    return {**found, "more": {**more, **noted(notes, kinds), "met": met, "all_kinds": sorted(set(kinds.values()))}}


def together(rows: list[dict[str, Any]], given: argparse.Namespace, folder: Path, facts: dict[str, Any]) -> None:
    """All `rows`, which share a recipe: the plain loop once, then each placement. One line of JSON for each."""
    recipe = recipe_of(rows[0], given.steps)
    folder.mkdir()
    plain: dict[str, Any] | None = None
    for row in rows:
        if time.monotonic() > given.until:
            break
        line: dict[str, Any] = {"row": row, "steps": given.steps, **facts}
        try:
            if plain is None:  # in a child, so that this process can go on to fork workers that use the GPU
                plain = in_child(lambda: run(recipe, folder / "plain", "plain", device=given.device))
            piped = one(row, recipe, given.device, folder)
            line |= {**verdict(plain, piped), **piped["more"]}
        except Exception as error:  # shown, counted, and the other rows go on
            line["error"] = f"{type(error).__name__}: {error}"[:2000]
        for left in ("plain", "pipeline"):
            shutil.rmtree(folder / left, ignore_errors=True)
        with given.log.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(told(words(row), line), flush=True)
    shutil.rmtree(folder, ignore_errors=True)


def words(row: dict[str, Any]) -> str:
    return " ".join(f"{row[name]!s:>{max(len(str(value)) for value in FACTORS[name])}}" for name in FACTORS)


# -- all rows


def runnable(row: dict[str, Any], device: str, gpus: int) -> bool:
    """Whether there are GPUs enough, or workers may share one."""
    return device == "cpu" or row["workers"] <= gpus or any(field.name == "transport" for field in fields(Placement))


def lines_of(log: Path, given: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The last line of each row."""
    lines = [json.loads(text) for text in log.read_text().splitlines()] if log.exists() else []
    return {key(line["row"]): line for line in lines if line["steps"] == given.steps and line["device"] == given.device}


def key(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True)


def figures(rows: list[Row], left_out: list[Row], given: argparse.Namespace, pairwise: Pairwise) -> dict[str, Any]:
    """What `covering.sh` prints: of the rows that should run, and of what is in the log about them."""
    known = lines_of(given.log, given)
    lines = [known[name] for row in rows if (name := key(pairwise.named(row))) in known]
    good = [line for line in lines if "error" not in line]
    equal = [tuple(line["row"][name] for name in pairwise.names) for line in good if line["equal"]]
    found: dict[str, Any] = {
        "wanted": len(rows) + len(left_out), "not_run_here": len(left_out), "ran": len(good),
        "failed": len(lines) - len(good), "different": sum(not line["equal"] for line in good),
        "violations": sum(line["violations"] for line in good),
        "pairs": len(pairwise.all_pairs()), "pairs_missing": len(pairwise.missing(equal)),
        "deterministic": sum(line["deterministic"] for line in good),
        "fetches": min((line["fetches"] for line in good if "fetches" in line), default=0),
        "steps": given.steps, "device": given.device,
        "one_each": sum(1 < line["row"]["workers"] <= line.get("gpus", 1) for line in good),
        "gpus": ", ".join(sorted({line["gpu"] for line in good})),
        "commits": ", ".join(sorted({line["commit"][:12] for line in good})),
    }  # fmt: skip
    for of in ("met", "replayed"):
        counts = [(len(total(good, of, w)), len(total(good, "all_kinds", w)), w) for w in FACTORS["workload"]]
        found[f"kinds_{of}"] = sum(count for count, _, _ in counts)
        found[f"kinds_{of}_by_workload"] = ", ".join(f"{w} {count} of {every}" for count, every, w in counts)
        found["kinds"] = sum(every for _, every, _ in counts)
    found["eager"] = sorted({f"{step}: {why}" for line in good for why, step in line["eager"].items()})
    return found


def facts_of(given: argparse.Namespace) -> dict[str, Any]:
    asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    seen = in_child(lambda: fingerprint(given.device))
    return {
        "device": given.device, "commit": given.commit or asked.stdout.strip() or "unknown", "torch": seen["torch"],
        "gpu": (seen.get("gpus") or ["none"])[0], "gpus": len(seen.get("gpus") or ()),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True, help="for temporary files, and figures.json")
    parser.add_argument("--log", type=Path, required=True, help="rows that stand there are not run again")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--workers", type=lambda text: [int(n) for n in text.split(",")], default=FACTORS["workers"])
    parser.add_argument("--executors", type=lambda text: text.split(","), default=FACTORS["executor"])
    parser.add_argument("--rows", default=":", help="only those from a to b: a:b")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worker processes at a time")
    parser.add_argument("--minutes", type=float, default=1e9, help="no row is begun later")
    parser.add_argument("--only-figures", action="store_true")
    parser.add_argument("--commit", help="of this code, where git cannot tell")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    given.until = time.monotonic() + 60 * given.minutes
    pairwise = Pairwise({**FACTORS, "workers": given.workers, "executor": given.executors}, void)
    gpus = 0 if given.only_figures or given.device == "cpu" else in_child(torch.cuda.device_count)
    every = pairwise.covering()
    rows = [row for row in every if given.only_figures or runnable(pairwise.named(row), given.device, gpus)]
    left_out = [row for row in every if row not in rows]
    if not given.only_figures:
        start, _, stop = given.rows.partition(":")
        asked = [pairwise.named(row) for row in rows[int(start or 0) : int(stop) if stop else None]]
        run_rows(asked, given)
    for row in left_out:
        print(f"{words(pairwise.named(row))}  not run: {gpus} GPU(s), and workers cannot share one")
    (given.out / "figures.json").write_text(json.dumps(figures(rows, left_out, given, pairwise), indent=1))
    return 0


def run_rows(rows: list[dict[str, Any]], given: argparse.Namespace) -> None:
    """Those that are not in the log, in groups of one recipe, so many workers at a time."""
    done = {name for name, line in lines_of(given.log, given).items() if "error" not in line}
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if key(row) not in done:
            groups.setdefault(key({name: row[name] for name in RECIPE}), []).append(row)
    jobs = sorted(groups.values(), key=lambda g: -sum(COST[r["workload"]] * (2 + r["workers"]) for r in g))
    print(
        f"{sum(map(len, jobs))} rows of {given.steps} subnets; seconds of the plain loop and of the pipeline:",
        flush=True,
    )
    facts = facts_of(given)
    calls: list[tuple[Any, ...]] = [(together, g, given, given.out / str(i), facts) for i, g in enumerate(jobs)]
    weights = [max(row["workers"] for row in group) for group in jobs]
    in_parallel(calls, given.jobs, weights, given.until)


if __name__ == "__main__":
    sys.exit(main())
