"""Runs of `verify_matrix.sh`: writes OUT/figures.json."""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import random
import shutil
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # for tests.runtime.gates

from sennit.profile.quick import block_order
from sennit.recipe import CheckpointRule, EvaluateRule, Placement, Recipe, read_recipe
from sennit.runtime.request import Request
from sennit.runtime.share import REAL_PARTS, Parts
from sennit.runtime.train import train
from sennit.supernet.lr import LrSchedule
from sennit.trace.access import read_accesses
from sennit.trace.check import check
from sennit.trace.rules import Rules

HASHES = ("weights_sha256", "optimizer_sha256", "losses_sha256")
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"name": "sgd", "momentum": 0.9, "weight_decay": 5e-4},
    "adam": {"name": "adam"},
    "adamw": {"name": "adamw", "weight_decay": 0.05},
}
FACTORS: dict[str, list[Any]] = {
    "workload": ["digits", "mnist5k", "nlp.c3-small", "cv.c3-small"],
    "workers": [1, 2, 3, 4, 8],
    "micro_batches": [1, 3, 4],
    "shared": ["strict", "delayed:3", "frozen"],
    "optimizer": list(OPTIMIZERS),
    "clip": ["none", "global:1.0", "layer:1.0"],
    "plan": ["balanced", "cuts"],
}
NAMES = list(FACTORS)
PLACEMENT = ("workers", "plan")
BATCH = {"digits": 16, "mnist5k": 12, "nlp.c3-small": 96, "cv.c3-small": 6}
COST = {"digits": 1.0, "mnist5k": 1.0, "nlp.c3-small": 3.0, "cv.c3-small": 3.0}
"""Rough, to start long runs first."""

Row = tuple[Any, ...]


# -- which runs


def pairs_of(row: Row) -> set[tuple[int, int, Any, Any]]:
    """Pairs that a run covers. One worker has nothing to cut, so there the plan meets only that."""
    alone, plan = row[NAMES.index("workers")] == 1, NAMES.index("plan")
    return {
        (i, j, row[i], row[j])
        for i, j in itertools.combinations(range(len(row)), 2)
        if not alone or plan not in (i, j) or NAMES.index("workers") in (i, j)
    }


def differs(row: Row) -> bool:
    """One worker has nothing to cut: with it, both plans are one run."""
    return row[NAMES.index("workers")] > 1 or row[NAMES.index("plan")] == "balanced"


def all_pairs() -> set[tuple[int, int, Any, Any]]:
    values = list(FACTORS.values())
    return {
        (i, j, a, b) for i, j in itertools.combinations(range(len(values)), 2) for a in values[i] for b in values[j]
    }


def covering() -> list[Row]:
    """The smallest of some greedy pairwise covering sets; the same on every machine."""
    return min((_greedy(seed) for seed in range(20)), key=len)


def _greedy(seed: int) -> list[Row]:
    draw, left, rows = random.Random(seed), sorted(all_pairs(), key=str), []
    missing = set(left)
    while missing:
        best: tuple[int, Row] = (-1, ())
        for _ in range(30):
            i, j, a, b = draw.choice(sorted(missing, key=str))
            row: dict[int, Any] = {i: a, j: b}
            rest = [k for k in range(len(NAMES)) if k not in row]
            draw.shuffle(rest)
            for k in rest:
                values = list(FACTORS[NAMES[k]])
                draw.shuffle(values)
                row[k] = max(values, key=lambda v: sum(_pair(k, v, o, w) in missing for o, w in row.items()))
            whole = tuple(row[k] for k in range(len(NAMES)))
            best = max(best, (len(pairs_of(whole) & missing), whole), key=lambda held: held[0])
        rows.append(best[1])
        missing -= pairs_of(best[1])
    return rows


def _pair(k: int, v: Any, o: int, w: Any) -> tuple[int, int, Any, Any]:
    return (k, o, v, w) if k < o else (o, k, w, v)


# -- one recipe


def recipe_of(row: dict[str, Any], steps: int) -> Recipe:
    name, m = row["workload"], row["micro_batches"]
    made = read_recipe(f"recipes/{name}.toml")
    data = {**made.data_args, "rows_multiple": m} if "rows_multiple" in made.data_args else made.data_args
    base = 0.01 if row["optimizer"] == "sgd" else 0.001
    return replace(
        made, batch_size=BATCH[name], micro_batches=m, data_args=data, steps=steps, shared=row["shared"],
        optimizer=OPTIMIZERS[row["optimizer"]], clip=row["clip"], evaluate=EvaluateRule(),
        lr=LrSchedule(name="cosine", base=base, warmup=10, final=0.0),
        checkpoint=CheckpointRule(every=10**9, keep=1),
    )  # fmt: skip


def cuts_file(recipe: Recipe, workers: int, path: Path) -> str:
    """Unequal cuts, others for every subnet."""
    blocks = block_order(recipe.built)
    draw = random.Random(workers)
    cuts = [sorted(draw.sample(range(1, len(blocks)), workers - 1)) for _ in range(11)]
    path.write_text(json.dumps({"format": "sennit.cuts/1", "cuts": cuts}))
    return str(path)


def run(recipe: Recipe, out: Path, engine: Any, parts: Parts = REAL_PARTS, **placement: Any) -> dict[str, Any]:
    """Hashes, violations and seconds; nothing is left of the run folder."""
    begin = time.time()
    held = train(
        Request(recipe=recipe, placement=Placement(**placement), engine=engine, out=out, save=False, parts=parts)
    )
    built = recipe.built
    rules = Rules(
        recipe.micro_batches, recipe.shared, frozenset(built.always[0]) | frozenset(built.always[1]), end=recipe.steps
    )
    found = check(read_accesses(out / "access.jsonl"), rules)
    shutil.rmtree(out)
    return {**{k: held[k] for k in HASHES}, "violations": len(found), "seconds": time.time() - begin}


def together(rows: list[dict[str, Any]], steps: int, out: Path, log: Path) -> None:
    """All `rows`, which share a recipe: the plain loop once, then each placement. One line of JSON for each."""
    recipe = recipe_of(rows[0], steps)
    out.mkdir()
    plain: dict[str, Any] | None = None
    for row in rows:
        line: dict[str, Any] = {"row": row, "steps": steps}
        try:
            plain = plain or run(recipe, out / "plain", "plain")
            workers = row["workers"]
            plan = cuts_file(recipe, workers, out / "cuts.json") if row["plan"] == "cuts" else None
            piped = run(recipe, out / "pipeline", "pipeline", workers=workers, plan=plan)
            line |= {
                "equal": all(plain[k] == piped[k] for k in HASHES),
                "different": [k for k in HASHES if plain[k] != piped[k]],
                "violations": plain["violations"] + piped["violations"],
                "weights_sha256": piped["weights_sha256"],
                "plain_s": round(plain["seconds"], 1), "pipeline_s": round(piped["seconds"], 1),
            }  # fmt: skip
        except Exception as error:  # shown, counted, and the other runs go on
            line["error"] = f"{type(error).__name__}: {error}"
            shutil.rmtree(out / "plain", ignore_errors=True)
            shutil.rmtree(out / "pipeline", ignore_errors=True)
        with log.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(told(line), flush=True)
    shutil.rmtree(out, ignore_errors=True)


def told(line: dict[str, Any]) -> str:
    words = " ".join(f"{line['row'][name]!s:>{_width(name)}}" for name in NAMES)
    if "error" in line:
        return f"{words}  FAILED: {line['error']}"
    verdict = "equal" if line["equal"] else f"DIFFERENT {line['different']}"
    verdict += f", {line['violations']} violations" if line["violations"] else ""
    return f"{words}  {line['weights_sha256'][:12]} {line['plain_s']:6.1f} s {line['pipeline_s']:6.1f} s  {verdict}"


def _width(name: str) -> int:
    return max(len(str(value)) for value in FACTORS[name])


# -- many


def in_parallel(jobs: list[tuple[Any, ...]], at_once: int) -> None:
    """Each job in a process of its own (engines fork, so they want the main thread of one)."""
    context = multiprocessing.get_context("fork")
    waiting, running = list(jobs), []
    while waiting or running:
        while waiting and len(running) < at_once:
            job = waiting.pop(0)
            process = context.Process(target=job[0], args=job[1:])
            process.start()
            running.append(process)
        time.sleep(0.1)
        running = [process for process in running if process.is_alive()]


def broken(steps: int, out: Path) -> None:
    """The published rule with partitions that differ between subnets."""
    from tests.runtime.gates import Copies, FinishedAtThisStage

    row = {"workload": "digits", "micro_batches": 3, "shared": "strict", "optimizer": "adam", "clip": "global:1.0"}
    recipe = recipe_of(row, steps)
    plain = run(recipe, out / "broken-plain", "plain")
    cuts = cuts_file(recipe, 3, out / "broken-cuts.json")
    parts = Parts(FinishedAtThisStage, Copies)
    held = run(recipe, out / "broken", "pipeline", parts, workers=3, plan=cuts, in_flight=8)
    figures = {
        "broken_violations": held["violations"], "broken_weights": held["weights_sha256"],
        "broken_plain_weights": plain["weights_sha256"],
    }  # fmt: skip
    (out / "broken.json").write_text(json.dumps(figures))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--full", type=Path)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", type=int, default=10**9, help="only so many runs, for a trial")
    parser.add_argument("--workloads", nargs="+", default=FACTORS["workload"], help="to share runs between machines")
    given = parser.parse_args()
    begin = time.time()
    if given.full is None:
        rows, steps, log = covering(), given.steps or 200, given.out / "runs.jsonl"
    else:
        rows = [row for row in itertools.product(*FACTORS.values()) if differs(row)]
        steps, log = given.steps or 12, given.full
    rows = [row for row in rows if row[NAMES.index("workload")] in given.workloads][: given.only]
    log.touch()

    def done() -> list[dict[str, Any]]:
        lines = {json.dumps(line["row"]): line for line in map(json.loads, log.read_text().splitlines())}
        wanted = {json.dumps(dict(zip(NAMES, row, strict=True))) for row in rows}
        return [line for key, line in lines.items() if key in wanted and line["steps"] == steps]

    ran = {json.dumps(line["row"]) for line in done() if "error" not in line}
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        named = dict(zip(NAMES, row, strict=True))
        if json.dumps(named) not in ran:
            key = json.dumps({k: v for k, v in named.items() if k not in PLACEMENT})
            groups.setdefault(key, []).append(named)
    jobs = sorted(groups.values(), key=lambda g: -sum(COST[r["workload"]] * (4 + r["workers"]) for r in g))
    print(f"{sum(map(len, jobs))} runs of {steps} subnets; seconds of the plain loop and of the pipeline:", flush=True)
    calls: list[tuple[Any, ...]] = [(together, group, steps, given.out / str(i), log) for i, group in enumerate(jobs)]
    in_parallel(calls, given.jobs)
    in_parallel([(broken, min(max(steps, 60), 100), given.out)], 1)
    lines = done()
    counts = Counter((i, value) for row in rows for i, value in enumerate(row))
    figures = {
        "mode": "covering" if given.full is None else "full",
        "wanted": len(rows),
        "runs": len(lines),
        "equal": sum(bool(line.get("equal")) for line in lines),
        "violations": sum(line.get("violations", 0) for line in lines),
        "failed": len(rows) - sum("error" not in line for line in lines),
        "pairs_missing": len(all_pairs() - set().union(*map(pairs_of, rows))),
        "least": min(counts[i, value] for i, name in enumerate(NAMES) for value in FACTORS[name]),
        "minutes": round((time.time() - begin) / 60, 2),
    }
    caught = given.out / "broken.json"
    figures |= json.loads(caught.read_text()) if caught.exists() else {}
    (given.out / "figures.json").write_text(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
