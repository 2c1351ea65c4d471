"""Runs of `resume.sh`: writes OUT/figures.json."""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PLAIN_PYTORCH = """
import sys, torch
sys.modules["sennit"] = None  # whatever is installed: it cannot be imported here
torch.set_num_threads(1)
network = torch.export.load(sys.argv[1]).module()
x, y = torch.load(sys.argv[2])
with torch.no_grad():
    print(sum(int((network(part).argmax(1) == truth).sum()) for part, truth in zip(x, y)) / sum(map(len, y)))
"""


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sennit", *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def sennit(*words: str) -> dict[str, Any]:
    process = start(*words)
    said, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"sennit {' '.join(words)} ended with {process.returncode}: {said[:1000]}")
    return json.loads(said)


def log_of(run: Path) -> Path | None:
    return next(iter(run.glob("search/*/search.jsonl")), None)


def results(run: Path) -> int:
    """Evaluations in the log, whose first line says what is searched."""
    log = log_of(run)
    return max(log.read_bytes().count(b"\n") - 1, 0) if log else 0


def sha(run: Path) -> str:
    log = log_of(run)
    return hashlib.sha256(log.read_bytes()).hexdigest() if log else "none"


def in_plain_pytorch(recipe_file: Path, exported: Path, data: Path) -> float:
    import torch

    from sennit.explore.heldout import held_out
    from sennit.recipe import load_recipe

    recipe = load_recipe(recipe_file)
    rule = json.loads((exported / "arch.json").read_text())["evaluation"]
    dataset = recipe.built.dataset(rule["split"])
    batches = held_out(dataset, rule["batch_size"], rule["samples"], recipe.seed, torch.device("cpu"))
    torch.save(([x for x, _ in batches], [y for _, y in batches]), data)
    done = subprocess.run(
        [sys.executable, "-c", PLAIN_PYTORCH, str(exported / "network.pt2"), str(data)],
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return float(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--budget", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    whole, killed, recipe = given.out / "whole", given.out / "killed", Path("recipes/digits.toml")
    sennit("train", str(recipe), "--steps", str(given.steps), "--workers", "2", "--out", str(whole))
    shutil.copytree(whole, killed)
    words = ("--strategy", "evolution", "--budget", str(given.budget))
    begin = time.monotonic()
    process, first = start("search", str(whole), *words), 0.0
    while process.poll() is None:
        if not first and results(whole):
            first = time.monotonic() - begin
        time.sleep(0.02)
    if process.returncode:
        raise SystemExit(f"the search failed: {process.stdout.read() if process.stdout else ''}")
    evaluating = time.monotonic() - begin - first
    print(f"uninterrupted search: {first:.1f} s to the first result, then {evaluating:.1f} s", flush=True)

    kills = inside = 0
    # the first while it starts, the others soon after so many results, drawn by lot
    for wanted in [0, *sorted(draw.sample(range(1, given.budget * 9 // 10), given.kills - 1))]:
        process, began = start("search", str(killed), *words), time.monotonic()
        while process.poll() is None and results(killed) < wanted:
            time.sleep(0.005)
        pause = draw.uniform(0, 2 * evaluating / given.budget) if wanted else draw.uniform(0, first)
        time.sleep(pause)
        if process.poll() is not None:
            break
        process.kill()
        process.wait()
        kills += 1
        there = results(killed)
        inside += 0 < there < given.budget
        print(f"kill {kills} after {time.monotonic() - began:.1f} s: {there} results in the log", flush=True)
    found = sennit("search", str(killed), *words)
    exported = given.out / "network"
    made = sennit("export", str(killed), "--to", str(exported))
    figures = {
        "budget": given.budget, "evaluations": found["evaluations"], "kills": kills, "kills_inside": inside,
        "log_whole": sha(whole), "log_killed": sha(killed),
        "accuracy_searched": repr(found["best"]["metrics"]["accuracy"]),
        "accuracy_exported": repr(made["metrics"]["accuracy"]),
        "accuracy_plain": repr(in_plain_pytorch(recipe, exported, given.out / "held_out.pt")),
    }  # fmt: skip
    (given.out / "figures.json").write_text(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
