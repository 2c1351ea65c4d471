"""Runs of `verify_matrix.sh`: writes OUT/figures.json."""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # for acceptance.engine, tests.runtime.gates

from acceptance.engine.compared import cuts_file, in_parallel, run, shortened, told, verdict
from acceptance.engine.pairs import Pairwise, Row

from sennit.recipe import Recipe, read_recipe
from sennit.runtime.share import Parts

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


# -- which runs


def void(row: dict[str, Any]) -> dict[str, str]:
    """One worker has nothing to cut, so there the plan meets only that."""
    return {"plan": "workers"} if row["workers"] == 1 else {}


def differs(row: Row) -> bool:
    """One worker has nothing to cut: with it, both plans are one run."""
    return row[NAMES.index("workers")] > 1 or row[NAMES.index("plan")] == "balanced"


PAIRWISE = Pairwise(FACTORS, void)


# -- one recipe


def recipe_of(row: dict[str, Any], steps: int) -> Recipe:
    name, m = row["workload"], row["micro_batches"]
    made = read_recipe(f"recipes/{name}.toml")
    data = {**made.data_args, "rows_multiple": m} if "rows_multiple" in made.data_args else made.data_args
    return shortened(
        made, steps, batch_size=BATCH[name], micro_batches=m, data_args=data, shared=row["shared"],
        optimizer=OPTIMIZERS[row["optimizer"]], clip=row["clip"],
    )  # fmt: skip


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
            line |= verdict(plain, piped)
        except Exception as error:  # shown, counted, and the other runs go on
            line["error"] = f"{type(error).__name__}: {error}"
        for left in ("plain", "pipeline"):
            shutil.rmtree(out / left, ignore_errors=True)
        with log.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(told(words(row), line), flush=True)
    shutil.rmtree(out, ignore_errors=True)


def words(row: dict[str, Any]) -> str:
    return " ".join(f"{row[name]!s:>{max(len(str(value)) for value in FACTORS[name])}}" for name in NAMES)


# -- many


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
        rows, steps, log = PAIRWISE.covering(), given.steps or 200, given.out / "runs.jsonl"
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
    figures = {
        "mode": "covering" if given.full is None else "full",
        "wanted": len(rows),
        "runs": len(lines),
        "equal": sum(bool(line.get("equal")) for line in lines),
        "violations": sum(line.get("violations", 0) for line in lines),
        "failed": len(rows) - sum("error" not in line for line in lines),
        "pairs_missing": len(PAIRWISE.missing(rows)),
        "least": PAIRWISE.least(rows),
        "minutes": round((time.time() - begin) / 60, 2),
    }
    caught = given.out / "broken.json"
    figures |= json.loads(caught.read_text()) if caught.exists() else {}
    (given.out / "figures.json").write_text(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
