"""Runs to compare: hashes of an engine and what the checker of its access log finds; many of them at a time."""

from __future__ import annotations

import json
import math
import multiprocessing
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sennit.profile.quick import block_order
from sennit.recipe import CheckpointRule, EvaluateRule, Placement, Recipe
from sennit.runtime.request import Request
from sennit.runtime.share import REAL_PARTS, Parts
from sennit.runtime.train import train
from sennit.supernet.lr import LrSchedule
from sennit.trace.access import read_accesses
from sennit.trace.check import check
from sennit.trace.rules import Rules

HASHES = ("weights_sha256", "optimizer_sha256", "losses_sha256")


def run(recipe: Recipe, out: Path, engine: Any, parts: Parts = REAL_PARTS, **placement: Any) -> dict[str, Any]:
    """The result, violations and seconds. Keeps no checkpoints; the folder is the caller's to look at and to remove."""
    begin = time.time()
    held = train(
        Request(recipe=recipe, placement=Placement(**placement), engine=engine, out=out, save=False, parts=parts)
    )
    built = recipe.built
    rules = Rules(
        recipe.micro_batches, recipe.shared, frozenset(built.always[0]) | frozenset(built.always[1]), end=recipe.steps
    )
    found = check(read_accesses(out / "access.jsonl"), rules)
    return {**held, "violations": len(found), "wall_s": time.time() - begin}


def verdict(plain: dict[str, Any], piped: dict[str, Any]) -> dict[str, Any]:
    """Of two runs of one recipe."""
    return {
        "equal": all(plain[k] == piped[k] for k in HASHES),
        "different": [k for k in HASHES if plain[k] != piped[k]],
        "violations": plain["violations"] + piped["violations"],
        "weights_sha256": piped["weights_sha256"],
        "plain_s": round(plain["wall_s"], 1), "pipeline_s": round(piped["wall_s"], 1),
    }  # fmt: skip


def told(words: str, line: dict[str, Any]) -> str:
    """A line about a row, for people."""
    if "error" in line:
        return f"{words}  FAILED: {line['error']}"
    shown = "equal" if line["equal"] else f"DIFFERENT {line['different']}"
    shown += f", {line['violations']} violations" if line["violations"] else ""
    return f"{words}  {line['weights_sha256'][:12]} {line['plain_s']:6.1f} s {line['pipeline_s']:6.1f} s  {shown}"


def cuts_file(recipe: Recipe, workers: int, path: Path) -> str:
    """Unequal cuts, others for every subnet."""
    blocks = block_order(recipe.built)
    draw = random.Random(workers)
    cuts = [sorted(draw.sample(range(1, len(blocks)), workers - 1)) for _ in range(11)]
    path.write_text(json.dumps({"format": "sennit.cuts/1", "cuts": cuts}))
    return str(path)


def shortened(made: Recipe, steps: int, **changes: Any) -> Recipe:
    """A recipe over so many subnets: with warmup and decay, without evaluations and checkpoints."""
    base = 0.01 if changes.get("optimizer", made.optimizer)["name"] == "sgd" else 0.001
    return replace(
        made, steps=steps, evaluate=EvaluateRule(), checkpoint=CheckpointRule(every=10**9, keep=1),
        lr=LrSchedule(name="cosine", base=base, warmup=10, final=0.0), **changes,
    )  # fmt: skip


def in_parallel(
    jobs: list[tuple[Any, ...]], at_once: int, weights: Sequence[int] | None = None, until: float = math.inf
) -> None:
    """Each job in a process of its own (engines fork, so they want the main thread of one).

    Args:
        weights: of each job; those that run weigh at most `at_once` together, or are one. 1 each if left out.
        until: none is begun later, by the monotonic clock.
    """
    context = multiprocessing.get_context("fork")
    waiting = list(zip(jobs, weights or [1] * len(jobs), strict=True))
    running: list[tuple[Any, int]] = []
    while waiting or running:
        while waiting and (not running or waiting[0][1] + sum(weight for _, weight in running) <= at_once):
            job, weight = waiting.pop(0)
            if time.monotonic() > until:
                continue
            process = context.Process(target=job[0], args=job[1:])
            process.start()
            running.append((process, weight))
        time.sleep(0.1)
        running = [(process, weight) for process, weight in running if process.is_alive()]
