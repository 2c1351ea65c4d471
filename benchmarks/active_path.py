"""What the rest of a supernet costs the path that is active: one arch in its space, and the same network alone.

    python benchmarks/active_path.py                                     # digits, nlp.c3-small, cv.c3-small on a CPU
    python benchmarks/active_path.py nlp.c3 cv.c3 --device cuda --out active_path.json

Retiarii's Figure 3 shows a network inside a jumbo model to be slower than the network by itself. Here one arch of a
recipe is trained three ways, each on weights of its own:

    supernet   the plain loop: model(x, arch=arch), the recipe's loss and optimizer over the whole space
    frozen     the same loop over `freeze(model, arch)`, an optimizer over its parameters
    by hand    the space's own forward and modules without programs, Edges or keyed draws: for comparison only

One step is forward, loss and backward of all micro-batches and the optimizer's step, on one batch. Steps take turns,
one of each way, and the ratio of the frozen network's time to the supernet's is taken turn by turn: its median is 1 if
the rest of the supernet costs nothing. Exits 1 if that is less than .97 for a recipe. On a CPU the time is that of the
process, so that other work on the machine counts little; on a GPU that of the clock, the device waited for.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import sennit as sn
from sennit.explore.frozen import freeze
from sennit.program.template import map_tree
from sennit.recipe import Recipe
from sennit.runtime.fingerprint import fingerprint
from sennit.space.choice import selecting
from sennit.space.model_space import ModelSpace, as_call
from sennit.supernet.loss import share_of_loss
from sennit.supernet.optim import make_optimizer
from sennit.supernet.task import Task

NEEDED = 0.97
WAYS = ("supernet", "frozen", "by hand")


def commit() -> str:
    """The commit of this checkout, if it is one."""
    asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "unknown"


def optimizer_of(recipe: Recipe, module: nn.Module) -> torch.optim.Optimizer:
    """The recipe's optimizer over a module's parameters."""
    return make_optimizer(recipe.optimizer_name, recipe.optimizer_arguments, module.named_parameters(), 1e-4)


def looped(recipe: Recipe, task: Task, network: Callable[[Any], Any], optimizer: torch.optim.Optimizer) -> None:
    """A turn of the plain loop, without clipping."""
    for j, (x, y) in enumerate(task.micro_batches):
        with sn.keyed_rng(task, j):
            loss = recipe.loss(network(x), y, task, j)
            loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def by_hand(recipe: Recipe, task: Task, model: ModelSpace) -> Callable[[], None]:
    """What one would write for this one network, in plain PyTorch."""
    options = model.structure.parse(task.arch)
    optimizer = optimizer_of(recipe, active(model, task))
    function = recipe.built.loss_function

    def step() -> None:
        for j, (x, y) in enumerate(task.micro_batches):
            args, kwargs = as_call(x)
            with selecting(options):  # calls go to the modules themselves
                out = model(*args, **kwargs)
            assert task.counts is not None
            share_of_loss(function, out, y, task.counts, j).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def active(model: ModelSpace, task: Task) -> nn.Module:
    """The parameters that an arch uses."""
    args, kwargs = as_call(task.micro_batches[0][0])
    program = model.program(task.arch, *args, **kwargs)
    wanted = {name for step in program.steps for name in step.params}
    held = nn.Module()
    for n, (name, parameter) in enumerate(model.named_parameters()):
        if name in wanted and parameter.requires_grad:
            held.register_parameter(f"p{n}", parameter)
    return held


def ways(recipe: Recipe, device: torch.device) -> dict[str, Callable[[], None]]:
    """A function for each way, that makes one step."""
    task = next(iter(recipe.tasks(1)))
    task.micro_batches = map_tree(lambda t: t.to(device) if isinstance(t, Tensor) else t, task.micro_batches)
    model = recipe.build_model().to(device)
    assert isinstance(model, ModelSpace)
    optimizer = recipe.build_optimizer(model)
    looped(recipe, task, lambda x: model(x, arch=task.arch), optimizer)
    network = freeze(model, task.arch, task.micro_batches[0][0], precision=recipe.precision)
    alone = optimizer_of(recipe, network)

    def call(x: Any) -> Any:
        args, kwargs = as_call(x)
        return network(*args, **kwargs)

    hand = recipe.build_model().to(device)
    assert isinstance(hand, ModelSpace)
    return {
        "supernet": lambda: looped(recipe, task, lambda x: model(x, arch=task.arch), optimizer),
        "frozen": lambda: looped(recipe, task, call, alone),
        "by hand": by_hand(recipe, task, hand),
    }


def measure(recipe: Recipe, device: torch.device, seconds: float, least: int) -> dict[str, list[float]]:
    """Seconds of the steps of each way, in turns."""
    steps = ways(recipe, device)

    def now() -> float:
        if device.type != "cuda":
            return time.process_time()
        torch.cuda.synchronize(device)
        return time.perf_counter()

    laps: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(5):  # warm up
        for way in WAYS:
            steps[way]()
    gc.collect()
    gc.freeze()
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(laps["frozen"]) < least:
        for way in WAYS:
            began = now()
            steps[way]()
            laps[way].append(now() - began)
    gc.unfreeze()
    return laps


def ratio(one: Sequence[float], other: Sequence[float]) -> float:
    """Median of the ratios of each turn."""
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description="Steps of one arch in its space and alone.")
    parser.add_argument("recipes", nargs="*", default=["digits", "nlp.c3-small", "cv.c3-small"])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--seconds", type=float, default=15.0, help="for each recipe")
    parser.add_argument("--least", type=int, default=20, help="steps of each way")
    parser.add_argument("--data", help="TSV of the ende data set, for nlp.c3")
    parser.add_argument("--commit", help="of this code, where git cannot tell")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in given.recipes:
        path = Path("recipes") / f"{name}.toml"
        recipe = sn.load_recipe(path if path.exists() else name)
        if given.data and recipe.data == "ende":
            recipe.data_args["path"] = str(Path(given.data).resolve())
        laps = measure(recipe, torch.device(given.device), given.seconds, given.least)
        ms = {way: 1e3 * statistics.median(found) for way, found in laps.items()}
        row = {
            "recipe": name,
            "device": given.device,
            "steps_each": len(laps["frozen"]),
            "ms": ms,
            "quartiles_ms": {way: [1e3 * q for q in statistics.quantiles(found)] for way, found in laps.items()},
            "steps_per_s": {way: 1e3 / found for way, found in ms.items()},
            "frozen_by_supernet": ratio(laps["frozen"], laps["supernet"]),
            "hand_by_supernet": ratio(laps["by hand"], laps["supernet"]),
        }
        rows.append(row)
        print(json.dumps(row), flush=True)
    if given.out is not None:
        written = {
            "command": " ".join(sys.argv),
            "commit": given.commit or commit(),
            "fingerprint": fingerprint(given.device),
            "rows": rows,
        }
        given.out.write_text(json.dumps(written, indent=1) + "\n")
    return 0 if all(row["frozen_by_supernet"] >= NEEDED for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
