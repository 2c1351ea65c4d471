"""Host time per layer, eager against replayed from graphs, in one process on one GPU; and the bits of whole runs.

    python benchmarks/graphs.py --data en_de_help.tsv.gz --out graphs.json [--recipe recipes/nlp.c3.toml] [--subnets 6]
                                [--steps 40] [--timelines FOLDER]

Each layer of some subnets is run forward and backward on every micro-batch of a batch, by `EagerExecutor` and by
`GraphExecutor`, in turn. What is timed is the host alone: from the call until it returns, the device idle before it.
Outputs and gradients are compared bit by bit. Then the recipe is trained by both, with the same hashes or exit code 1.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import statistics
import sys
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from gpu_hashes import HASHES, commit
from torch import Tensor

from sennit.executor.capture import CudaGraphs
from sennit.executor.eager import EagerExecutor
from sennit.executor.graphs import GraphExecutor
from sennit.memory.layout import Layout
from sennit.program.cut import Run, cut
from sennit.program.run import bind_inputs
from sennit.program.step import Program
from sennit.program.template import map_tree
from sennit.recipe import Placement, Recipe, read_recipe
from sennit.runtime.fingerprint import fingerprint
from sennit.runtime.request import Request
from sennit.runtime.train import train
from sennit.space.model_space import as_call
from sennit.space.names import canonical_names, unique_tensors
from sennit.supernet.bits import same_bits
from sennit.supernet.context import StepContext, set_kernel_flags, step_context
from sennit.supernet.loss import count_terms


class Layers:
    """Subnets of a recipe, layer by layer, on memory laid out as in slots."""

    def __init__(self, recipe: Recipe, device: torch.device) -> None:
        set_kernel_flags(recipe.precision)
        self.recipe, self.built, self.device = recipe, recipe.built, device
        skeleton = self.built.modules
        self.like = unique_tensors(skeleton)
        self.eager = EagerExecutor(skeleton, canonical_names(skeleton), self.built.frozen_names, device)
        self.graphs = GraphExecutor(self.eager, CudaGraphs(device))
        self.trained = frozenset(self.built.trained)
        self.held: dict[str, Tensor] = {}

    def slot(self, name: str) -> Tensor:
        """A tensor, made with its group when it is first asked for."""
        if name not in self.held:
            group = self.built.groups.of_name.get(name)
            names = (name,) if group is None else group.names
            region = Layout().region([(n, self.like[n]) for n in names])
            flat = torch.zeros(region.nbytes, dtype=torch.uint8, device=self.device)
            for n, tensor in region.views_of(flat).items():
                if tensor.dtype.is_floating_point:
                    tensor.normal_(0.0, 0.02) if n in self.trained else tensor.fill_(1.0)
                self.held[n] = tensor.requires_grad_(n in self.trained)
        return self.held[name]

    def subnet(self, y: int, program: Program, batch: int, timed: bool) -> dict[str, Any]:
        """Run a subnet by both executors. Returns host seconds, by executor, of each layer and micro-batch."""
        found: dict[str, Any] = defaultdict(list)
        micro = map_tree(
            lambda t: t.to(self.device) if isinstance(t, Tensor) else t,
            self.built.micro_batches(self.built.batches[batch]),
        )
        runs = cut(program, range(len(program.steps)))
        counts: list[list[int]] = []
        for j, (x, target) in enumerate(micro):
            context = StepContext.of(self.recipe.seed, y, j, self.recipe.precision, self.device)
            values: dict[int, Any] = {}
            wanted: dict[int, bool] = {}
            inputs = dict(bind_inputs(program, *as_call(x)))

            def loss(output: Any, j: int = j, target: Any = target) -> Tensor:
                if not counts:
                    counts.append(count_terms(self.built.loss_function, [t for _, t in micro], output))
                return self.built.loss_of(output, target, counts[0], j)

            with step_context(context):
                for run in runs:
                    arrivals = {a.value: (values[a.value], wanted.get(a.value, False)) for a in run.arrivals}
                    one = self.both(program, run, arrivals, inputs if run.reads_input else {}, context, loss, found)
                    values.update(one[0])
                    wanted.update(one[1])
        return found if timed else {}

    def both(
        self, program: Program, run: Run, arrivals: Any, inputs: Any, context: StepContext, loss: Any, found: Any
    ) -> tuple[dict[int, Any], dict[int, bool]]:
        """Forward and backward of one layer by both executors, compared."""
        results: dict[str, Any] = {}
        layer = bool(run.steps[0].params) and run.steps[0].kind == "module" and not run.has_loss
        before = {n: self.slot(n).detach().clone() for step in run.steps for n in step.written}
        for name, executor in (("eager", self.eager), ("graphs", self.graphs)):
            for n, tensor in before.items():
                self.slot(n).detach().copy_(tensor)
            replayed = self.graphs.counts["replayed steps"]
            torch.cuda.synchronize()
            t = time.perf_counter()
            out, ctx = executor.forward(
                program, run, self.slot, arrivals, inputs, context, loss if run.has_loss else None, lambda step: None
            )
            forward = time.perf_counter() - t
            grads = {v: [torch.cos(root.float()).to(root.dtype)] for v, root in ctx.roots.items()}
            torch.cuda.synchronize()
            t = time.perf_counter()
            back = executor.backward(ctx, grads)  # type: ignore[arg-type]
            backward = time.perf_counter() - t
            torch.cuda.synchronize()
            if layer and (name == "eager" or self.graphs.counts["replayed steps"] > replayed):
                found[name].append((run.steps[0].call, forward, backward))
            elif layer:
                found["eager"].pop()  # not replayed: no pair
            written = {n: self.slot(n).detach().clone() for n in before}
            results[name] = (out, ctx.loss, sorted(back.values.items()), sorted(back.parameters.items()), written)
            roots = {v: v in ctx.roots for v in out}
        found["equal"].append(same_bits(results["eager"], results["graphs"]))
        return results["eager"][0], roots


def host_times(recipe: Recipe, subnets: int, timelines: Path | None) -> dict[str, Any]:
    """Microseconds of the host per layer and micro-batch."""
    layers = Layers(recipe, torch.device("cuda", 0))
    programs = [layers.built.program(task.arch) for task in recipe.tasks(steps=subnets)]
    for _ in range(2):  # every kind and shape is seen often enough
        for y, program in enumerate(programs):
            layers.subnet(y, program, y, timed=False)
    found: dict[str, list[Any]] = defaultdict(list)
    for y, program in enumerate(programs):
        for name, items in layers.subnet(y, program, y, timed=True).items():
            found[name] += items
    if timelines is not None:
        timelines.mkdir(parents=True, exist_ok=True)
        keep_timelines(layers, programs[0], timelines)
    result: dict[str, Any] = {
        "layers timed": len(found["graphs"]), "of": len(found["eager"]), "equal": all(found["equal"]),
        "compared": len(found["equal"]), "graphs": len([g for g in layers.graphs.graphs.values() if g is not None]),
        "stay eager": layers.graphs.refused, "staging bytes": layers.graphs.staging.nbytes,
        "reserved bytes": torch.cuda.memory_reserved(),
    }  # fmt: skip
    for name in ("eager", "graphs"):
        for i, part in ((1, "forward"), (2, "backward")):
            result[f"{name} {part}, us"] = 1e6 * statistics.median(item[i] for item in found[name])
        result[f"{name}, us"] = 1e6 * statistics.mean(item[1] + item[2] for item in found[name])
    result["eager / graphs"] = result["eager, us"] / result["graphs, us"]
    return result


def keep_timelines(layers: Layers, program: Program, folder: Path) -> None:
    """One subnet by each executor, as the profiler sees it; opens in Perfetto."""
    from torch.profiler import ProfilerActivity, profile

    for name, executor in (("eager", layers.eager), ("graphs", layers.graphs)):
        x, _ = layers.built.micro_batches(layers.built.batches[0])[0]
        x = map_tree(lambda t: t.to(layers.device) if isinstance(t, Tensor) else t, x)
        context = StepContext.of(layers.recipe.seed, 0, 0, layers.recipe.precision, layers.device)
        steps = program.steps[:-1]  # without the projection and the loss
        run = cut(program, [0] * len(steps) + [1])[0]
        inputs = dict(bind_inputs(program, *as_call(x)))
        with step_context(context):
            for _ in range(3):
                _, ctx = executor.forward(program, run, layers.slot, {}, inputs, context, None, lambda step: None)
                executor.backward(ctx, {v: [torch.ones_like(r)] for v, r in ctx.roots.items()})  # type: ignore[arg-type]
            torch.cuda.synchronize()
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
                _, ctx = executor.forward(program, run, layers.slot, {}, inputs, context, None, lambda step: None)
                executor.backward(ctx, {v: [torch.ones_like(r)] for v, r in ctx.roots.items()})  # type: ignore[arg-type]
                torch.cuda.synchronize()
        file = folder / f"{name}.json"
        seen.export_chrome_trace(str(file))
        with file.open("rb") as plain, gzip.open(f"{file}.gz", "wb") as packed:
            shutil.copyfileobj(plain, packed)
        file.unlink()


def trained(recipe: Recipe, engine: str, executor: str, steps: int, out: Path) -> dict[str, Any]:
    """One run of the recipe on one GPU."""
    request = Request(
        recipe=recipe, engine=engine, placement=Placement(device="cuda", executor=executor), out=out, steps=steps,
        save=False,
    )  # fmt: skip
    result = train(request)
    return {
        "engine": engine, "executor": executor, "ms per subnet": 1e3 / result["subnets_per_s"],
        **{h: result[h] for h in HASHES},
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="recipes/nlp.c3.toml")
    parser.add_argument("--data", help="TSV of the ende data set")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--subnets", type=int, default=6)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--micro-batches", type=int, default=0)
    parser.add_argument("--precision", default="")
    parser.add_argument("--timelines", type=Path)
    parser.add_argument("--commit", help="of this code, where git cannot tell")
    given = parser.parse_args()
    recipe = read_recipe(given.recipe)
    arguments = {**recipe.data_args, "path": str(Path(given.data).resolve())} if given.data else recipe.data_args
    rare = replace(recipe.checkpoint, every=10**9)  # the timed part has no cuts
    recipe = replace(recipe, data_args=arguments, checkpoint=rare, evaluate=replace(recipe.evaluate, every=0))
    if given.micro_batches:
        recipe = replace(recipe, micro_batches=given.micro_batches)
    if given.precision:
        recipe = replace(recipe, precision=given.precision)
    result: dict[str, Any] = {
        "command": " ".join(sys.argv), "commit": given.commit or commit(), "micro-batches": recipe.micro_batches,
        "precision": recipe.precision, "runs": [],
    }  # fmt: skip

    def keep() -> None:
        given.out.write_text(json.dumps(result, indent=1) + "\n")

    for engine, executor in (("pipeline", "eager"), ("pipeline", "graphs"), ("plain", "eager")):
        if given.steps:  # the plain loop starts CUDA here, after which no workers can be forked
            folder = given.out.with_suffix("") / f"{engine}-{executor}"
            result["runs"].append(trained(recipe, engine, executor, given.steps, folder))
            sys.stdout.write(json.dumps(result["runs"][-1]) + "\n")
            sys.stdout.flush()
            keep()
    result["fingerprint"] = fingerprint("cuda")
    result["host"] = host_times(recipe, given.subnets, given.timelines)
    sys.stdout.write(json.dumps(result["host"], indent=1) + "\n")
    hashes = {tuple(run[h] for h in HASHES) for run in result["runs"]}
    result["equal"] = len(hashes) <= 1 and result["host"]["equal"]
    keep()
    return 0 if result["equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
