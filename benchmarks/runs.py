"""What benchmarks of whole runs share: a recipe made fit for timing, and a run of it in a process of its own.

A run's process ends before the next begins, so its memory is given back, and it may start CUDA. What a recipe's space
needs before it is trained (programs, groups, the dry run) is made once, in the process that starts them.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from sennit.errors import UserError
from sennit.recipe import Placement, Recipe, read_recipe
from sennit.runtime.forked import in_child
from sennit.runtime.refuse import check
from sennit.runtime.request import EngineName, Progress, Request
from sennit.runtime.train import train
from sennit.runtime.transport import gpu_count, shared_gpus
from sennit.trace.events import Trace, read_call
from sennit.trace.perfetto import MOST_SPANS

HASHES = ("weights_sha256", "optimizer_sha256", "losses_sha256")


def commit() -> str:
    """The commit of this checkout, if it is one."""
    asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "unknown"


def timed_recipe(path: str, data: str | None = None, batch: int = 0) -> Recipe:
    """A recipe without cuts and evaluations in the part that is timed.

    Args:
        data: path of its data set, where it is a file.
        batch: another batch size; 0: the recipe's.
    """
    recipe = read_recipe(path)
    arguments = {**recipe.data_args, "path": str(Path(data).resolve())} if data else recipe.data_args
    return replace(
        recipe, data_args=arguments, batch_size=batch or recipe.batch_size,
        checkpoint=replace(recipe.checkpoint, every=10**9), evaluate=replace(recipe.evaluate, every=0),
    )  # fmt: skip


def a_gpu_each(placement: Placement) -> None:
    """Workers that share a GPU take turns: their times mean nothing.

    Raises:
        UserError: they would.
    """
    shared = shared_gpus(placement.workers, gpu_count()) if placement.device == "cuda" else ""
    if shared:
        raise UserError(f"{shared}; this is measured with a GPU for each worker")


def prepare(recipe: Recipe, placement: Placement) -> float:
    """Make here what every run of a recipe needs, so that each finds it. Returns how long it took, seconds."""
    began = time.monotonic()
    check(Request(recipe=recipe, placement=placement))
    recipe.built.modules  # noqa: B018 - thousands of layers take seconds to copy
    return time.monotonic() - began


def run(
    recipe: Recipe, engine: EngineName, placement: Placement, steps: int, offload: bool = False, warm: int = 0,
    keep: Path | None = None, drawn: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """Train in a process of its own.

    Args:
        warm: subnets at the beginning that `timed` leaves out.
        keep: gets the trace.
        drawn: bytes of initial weights that were drawn before (`speed/kept.py`).

    Returns:
        What `result.json` has, with `ms_per_subnet`, `setup_s` (all but training), `host_bytes`, and what of the set-up
        came before the first loss and behind the last one: `to_first_s`, `behind_last_s`; or what failed: `why`.
    """
    told: dict[str, Any] = {
        "engine": engine + (" --offload" if offload else ""), "placement": asdict(placement), "steps": steps
    }  # fmt: skip
    began = time.monotonic()
    train_it = partial(_trained, recipe, engine, placement, steps, offload, warm, keep, drawn)
    told.update(in_child(lambda: or_why(train_it)))
    told["wall_s"] = time.monotonic() - began
    if "seconds_training" in told:
        told["setup_s"] = told["wall_s"] - told["seconds_training"]
    return told


def or_why(function: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What it returns; or what failed, as `why`."""
    try:
        return function()
    except (UserError, RuntimeError, MemoryError, OSError) as error:
        return {"why": f"{type(error).__name__}: {error}"[:1500]}


def _trained(
    recipe: Recipe, engine: EngineName, placement: Placement, steps: int, offload: bool, warm: int, keep: Path | None,
    drawn: int,
) -> dict[str, Any]:  # fmt: skip
    seen, began = Seen(drawn), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        request = Request(
            recipe=recipe, engine=engine, placement=placement, offload=offload, out=Path(folder) / "run", steps=steps,
            save=False,
        )  # fmt: skip
        found = train(request, seen.look)
        found["to_first_s"], found["behind_last_s"] = seen.first - began, time.monotonic() - seen.last
        found.pop("out")
        spans = Path(folder) / "run" / "trace.jsonl"
        if spans.exists():
            trace = read_call(spans, MOST_SPANS)
            found["timed"] = timed(trace, warm)
            found["counters"] = counters(trace)
            if keep is not None:
                keep.write_bytes(spans.read_bytes())
    found["seconds_training"] = steps / found["subnets_per_s"]
    found["ms_per_subnet"] = 1e3 / found["subnets_per_s"]
    found["host_bytes"] = seen.host_bytes
    if torch.cuda.is_initialized():  # the plain loop, which runs right here
        found["device_bytes"] = torch.cuda.max_memory_allocated()
    return found


def timed(trace: Trace, warm: int) -> dict[str, Any]:
    """Time of workers by their spans, from when subnet `warm` begins."""
    begin = min(span.start for span in trace.spans if span.seq_id >= warm)
    wall = max(span.end for span in trace.spans) - begin
    busy = sum(span.end - max(span.start, begin) for span in trace.spans if span.end > begin)
    own = sum(span.end - span.start for span in trace.spans if span.seq_id >= warm)
    subnets = len({span.seq_id for span in trace.spans if span.seq_id >= warm})
    return {
        "subnets": subnets, "ms_per_subnet": 1e3 * wall / subnets, "busy_ms_per_subnet": 1e3 * own / subnets,
        "utilisation": busy / wall, "bubble": 1 - busy / (wall * trace.workers),
    }  # fmt: skip


def counters(trace: Trace) -> dict[str, float]:
    """The last value of each counter, summed over workers."""
    last = {(c.counter, c.worker): c.value for c in trace.counters}
    return {name: sum(value for (other, _), value in last.items() if other == name) for name, _ in sorted(last) if name}


class Seen:
    """What is seen of a run while it goes on.

    Args:
        inherited: bytes that every one of them has from who started this process: the system counts them as each one's
            own, and the run would not have them by itself.

    Attributes:
        host_bytes: the most memory that this process and its children have had, shared pages counted once.
        first, last: when the first loss was there, and the last one, by `time.monotonic`.
    """

    def __init__(self, inherited: int = 0) -> None:
        self.host_bytes, self.inherited = 0, inherited
        self.first = self.last = 0.0

    def look(self, progress: Progress) -> None:
        """Called after each subnet."""
        if progress.event == "subnet":
            self.last = time.monotonic()
            self.first = self.first or self.last
        alone, shared, me = 0, 0, str(os.getpid())
        for path in Path("/proc").glob("[0-9]*/status"):
            try:
                facts = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
            except OSError:
                continue  # it has ended
            if me in (facts["Pid"].strip(), facts["PPid"].strip()):
                alone += max(0, (int(facts.get("RssAnon", "0").split()[0]) << 10) - self.inherited)
                shared = max(shared, int(facts.get("RssShmem", "0").split()[0]) << 10)
        self.host_bytes = max(self.host_bytes, alone + shared)


def free_bytes() -> int:
    """Memory of this host that can be had."""
    facts = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line)
    free = int(facts["MemAvailable"].split()[0]) << 10
    for limit, used in (
        ("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")
    ):  # fmt: skip
        try:
            most, now = ((Path("/sys/fs/cgroup") / name).read_text().strip() for name in (limit, used))
        except OSError:
            continue
        if most.isdecimal():
            free = min(free, int(most) - int(now))
    return free


def equal(rows: list[dict[str, Any]]) -> bool:
    """Whether all runs that ended have the same hashes."""
    return len({tuple(row[h] for h in HASHES) for row in rows if "why" not in row}) <= 1
