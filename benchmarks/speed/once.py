"""One timed run, in a child of its own: CUDA is started there and nowhere else, and weights are shared (`kept.py`)."""

from __future__ import annotations

import copy
import json
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.speed.costs import idle_of, shares_of
from benchmarks.speed.hosts import hosts_of
from benchmarks.speed.kernels import Look, LookingExecutor
from benchmarks.speed.rows import LAYERS, Row
from benchmarks.speed.table import HASHES
from benchmarks.speed.window import GAP, Window

from sennit.errors import UserError
from sennit.profile.costs import Costs, mean_costs
from sennit.profile.quick import block_order
from sennit.recipe import Recipe
from sennit.runtime.forked import in_child
from sennit.runtime.request import Progress, Request
from sennit.runtime.share import Parts
from sennit.runtime.train import train
from sennit.trace.events import read_call
from sennit.trace.span import Span

BUILT: dict[int, Any] = {}
"""By M: what a recipe names, recorded once. The rule of synchronisation and `shared` change nothing of it."""


def made(recipe: Recipe, row: Row) -> Recipe:
    """The recipe of a row, built."""
    held = row.of(recipe)
    if row.micro_batches in BUILT:
        built = held.__dict__["built"] = copy.copy(BUILT[row.micro_batches])
        built.recipe = held
        for late in ("always", "frozen_names"):  # may depend on `shared`
            built.__dict__.pop(late, None)
    else:
        held.built.always  # noqa: B018 - recorded before the fork
        held.built.modules  # noqa: B018
        BUILT[row.micro_batches] = held.built
    return held


def run(
    recipe: Recipe, row: Row, window: Window, device: str, costs: Costs, most_s: int = 0
) -> tuple[dict[str, Any], list[Span]]:
    """Train one row. What cannot run is a row that says so.

    Args:
        costs: what layers take, by which they are shared out to workers.
        most_s: seconds after which the run is ended; 0: never.

    Returns:
        The row, and the spans of the sampled subnets and some around them, if it is by layer on one device.
    """
    facts = {
        "key": row.key, "name": row.name, "micro_batches": row.micro_batches, "workers": row.workers,
        "executor": row.executor, "shared": row.shared, "placed": row.placed,
        "sync": row.recipe.get("sync", recipe.sync),
    }  # fmt: skip
    begin = time.time()
    try:
        held = made(recipe, row)
        held.built.block_s = dict(zip(block_order(held.built), mean_costs(held.built, costs), strict=True))
        found, spans = in_child(lambda: _train(held, row, window, device, most_s))
    except UserError as error:
        found, spans = {"refused": str(error)}, []
    except Exception as error:
        found, spans = {"failed": f"{type(error).__name__}: {error}"[:2000]}, []
    return {**facts, **found, "wall_s": time.time() - begin}, spans


def _train(recipe: Recipe, row: Row, window: Window, device: str, most_s: int) -> tuple[dict[str, Any], list[Span]]:
    ends: list[float] = []
    signal.alarm(most_s)  # ends this process and, with it, workers that wait for one another
    recipe.built.dry.add((device, True))  # recipes that are timed have been trained before
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        look = Look(window.looked_at, Path(folder) / "kernels.json")
        looking = device == "cuda" and row.workers == 1

        def tell(progress: Progress) -> None:
            if progress.event == "subnet":
                ends.append(time.perf_counter())
                if looking and row.engine == "plain":
                    look.at(progress.done)

        def watched(executor: Any) -> Any:
            return LookingExecutor(executor, look, recipe.seed, row.micro_batches)

        result = train(
            Request(
                recipe=recipe, engine=row.engine, placement=row.placement(device), out=out, steps=window.steps,  # type: ignore[arg-type]
                save=False, parts=Parts(executor=watched if looking else None),
            ),
            tell,
        )  # fmt: skip
        ms, parts = window.rate(ends)
        found = {
            "ms": ms, "parts_ms": parts, "bubble": result["bubble"], "last_loss": result["last_loss"],
            **{key: result[key] for key in HASHES}, "slots": result.get("slots"),
            "tasks_run_again": result.get("tasks_run_again", 0), "all_ms": 1e3 / result["subnets_per_s"],
        }  # fmt: skip
        if look.out.exists():
            found["looked"] = json.loads(look.out.read_text())
        spans: list[Span] = []
        if row.engine == "pipeline":
            trace, near = read_call(out / "trace.jsonl"), range(window.warm - GAP, window.begin + GAP)
            for name in ("replayed steps", "kept steps", "eager steps", "graphs"):
                found[name] = sum(c.value for c in trace.counters if c.counter == name)
            found["kept bytes"] = max(
                (c.value for c in trace.counters if c.counter == "kept by graphs, bytes"), default=0
            )
            if row.workers == 1:
                spans = [span for span in trace.spans if span.seq_id in near]
                found["tasks"], found["idle_s"], found["busy_s"] = idle_of(spans, window.sampled)
                found["shares_s"] = shares_of(spans, window.sampled)
                found["hosts"] = hosts_of(spans, window.sampled)
    return found, spans if row.name == LAYERS else []
