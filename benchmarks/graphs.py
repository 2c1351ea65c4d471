"""Host time per layer, eager against replayed from graphs, in one process on one GPU; and the bits of whole runs.

    python benchmarks/graphs.py --data en_de_help.tsv.gz --out graphs.json [--recipe recipes/nlp.c3.toml] [--subnets 6]
                                [--layers 6] [--steps 40] [--timelines FOLDER]

The recipe is trained by the pipeline with both executors and by the plain loop: the same hashes, or exit code 1. Then
the layers of some subnets are run on every micro-batch of a batch, one by one by both executors, outputs and gradients
compared bit by bit; and all layers of a subnet in one run, as a worker with one stage runs them. Of that the host alone
is timed: from the call until it returns, the device idle before it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from runs import HASHES, commit
from torch import Tensor

from sennit.executor.capture import CudaGraphs
from sennit.executor.eager import EagerExecutor
from sennit.executor.graphs import GraphExecutor
from sennit.memory.layout import Layout
from sennit.program.cut import cut
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

    def micro_batches(self, batch: int) -> list[Any]:
        """Of a batch, on the device."""
        held = self.built.micro_batches(self.built.batches[batch])
        return map_tree(lambda t: t.to(self.device) if isinstance(t, Tensor) else t, held)

    def compare(self, y: int, program: Program, equal: list[bool]) -> None:
        """Run a subnet layer by layer, by both executors; note whether they gave the same bits."""
        micro = self.micro_batches(y)
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
                    given = inputs if run.reads_input else {}
                    before = {n: self.slot(n).detach().clone() for step in run.steps for n in step.written}
                    results: list[Any] = []
                    for executor in (self.eager, self.graphs):
                        for n, tensor in before.items():
                            self.slot(n).detach().copy_(tensor)
                        out, ctx = executor.forward(
                            program, run, self.slot, arrivals, given, context, loss if run.has_loss else None,
                            lambda step: None,
                        )  # fmt: skip
                        back = executor.backward(ctx, dense(ctx.roots))  # type: ignore[arg-type]
                        written = {n: self.slot(n).detach().clone() for n in before}
                        gone = [sorted(back.values.items()), sorted(back.parameters.items(), key=str)]
                        results.append((out, ctx.loss, gone, written))
                        values.update(out)
                        wanted.update((v, v in ctx.roots) for v in out)
                    equal.append(same_bits(*results))

    def stretch(self, y: int, program: Program, executor: Any) -> list[tuple[float, float]]:
        """Run all of a subnet but its last step in one run. Host seconds of forward and backward, per micro-batch."""
        run = cut(program, [0] * (len(program.steps) - 1) + [1])[0]
        found: list[tuple[float, float]] = []
        for j, (x, _) in enumerate(self.micro_batches(y)):
            context = StepContext.of(self.recipe.seed, y, j, self.recipe.precision, self.device)
            inputs = dict(bind_inputs(program, *as_call(x)))
            torch.cuda.synchronize()
            with step_context(context):
                t = time.perf_counter()
                _, ctx = executor.forward(program, run, self.slot, {}, inputs, context, None, lambda step: None)
                forward = time.perf_counter() - t
                grads = dense(ctx.roots)
                torch.cuda.synchronize()
                t = time.perf_counter()
                executor.backward(ctx, grads)
                backward = time.perf_counter() - t
                torch.cuda.synchronize()
            found.append((forward, backward))
        return found


def dense(roots: dict[int, Tensor]) -> dict[int, list[Tensor]]:
    """Gradients without zeros, for each root."""
    return {v: [torch.cos(root.detach().float()).to(root.dtype)] for v, root in roots.items()}


def host_times(recipe: Recipe, subnets: int, timelines: Path | None) -> dict[str, Any]:
    """Microseconds of the host per layer and micro-batch."""
    layers = Layers(recipe, torch.device("cuda", 0))
    programs = [layers.built.program(task.arch) for task in recipe.tasks(steps=subnets)]
    equal: list[bool] = []
    for y, program in enumerate(programs):
        layers.compare(y, program, [])  # kinds and shapes are seen
    for y, program in enumerate(programs):
        layers.compare(y, program, equal)
    times: dict[str, list[tuple[float, float]]] = {"eager": [], "graphs": []}
    steps = dict.fromkeys(times, 0)
    layers.graphs.counts.clear()
    for y, program in enumerate(programs):
        for name, executor in (("eager", layers.eager), ("graphs", layers.graphs)):
            layers.stretch(y, program, executor)  # once to warm up
            times[name] += layers.stretch(y, program, executor)
            steps[name] += sum(step.kind == "module" for step in program.steps[:-1]) * recipe.micro_batches
    if timelines is not None:
        keep_timelines(layers, programs[0], timelines)
    result: dict[str, Any] = {
        "equal": all(equal), "layers compared": len(equal), "layers timed": steps["graphs"],
        "steps": dict(layers.graphs.counts), "stay eager": layers.graphs.refused,
        "graphs": len([graph for graph in layers.graphs.graphs.values() if graph is not None]),
        "staging bytes": layers.graphs.staging.nbytes, "reserved bytes": torch.cuda.memory_reserved(),
    }  # fmt: skip
    for name, found in times.items():
        for i, part in enumerate(("forward", "backward")):
            result[f"{name}, {part}, us per layer"] = 1e6 * sum(item[i] for item in found) / steps[name]
        result[f"{name}, us per layer"] = 1e6 * sum(map(sum, found)) / steps[name]
    result["eager / graphs"] = result["eager, us per layer"] / result["graphs, us per layer"]
    return result


def keep_timelines(layers: Layers, program: Program, folder: Path) -> None:
    """One subnet by each executor, as the profiler sees it; opens in Perfetto."""
    from torch.profiler import ProfilerActivity, profile

    folder.mkdir(parents=True, exist_ok=True)
    for name, executor in (("eager", layers.eager), ("graphs", layers.graphs)):
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
            layers.stretch(0, program, executor)
        file = folder / f"{name}.json"
        seen.export_chrome_trace(str(file))
        held = json.loads(file.read_text())
        held.pop("traceName", None)  # a path of this machine
        with gzip.open(f"{file}.gz", "wt") as packed:
            json.dump(held, packed)
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
    parser.add_argument("--layers", type=int, default=0, help="of encoder and decoder, fewer than the recipe's")
    parser.add_argument("--micro-batches", type=int, default=0)
    parser.add_argument("--precision", default="")
    parser.add_argument("--timelines", type=Path)
    parser.add_argument("--commit", help="of this code, where git cannot tell")
    given = parser.parse_args()
    recipe = read_recipe(given.recipe)
    arguments = {**recipe.data_args, "path": str(Path(given.data).resolve())} if given.data else recipe.data_args
    rare = replace(recipe.checkpoint, every=10**9)  # the timed part has no cuts
    recipe = replace(recipe, data_args=arguments, checkpoint=rare, evaluate=replace(recipe.evaluate, every=0))
    if given.layers:
        recipe = replace(recipe, space_args={**recipe.space_args, "layers": given.layers})
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
