"""A quick profile: what each block costs, measured on this machine in about a second.

Times are only used to place steps, which cannot change a result, so a rough measurement is enough.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from sennit.program.copied import copied
from sennit.program.cut import cut
from sennit.program.run import bind_inputs
from sennit.program.step import Program
from sennit.space.model_space import as_call
from sennit.supernet.build import Built
from sennit.supernet.context import StepContext
from sennit.supernet.generators import generators_restored


def block_order(built: Built) -> list[str]:
    """All blocks of a space in program order.

    Programs of different archs may have different blocks; they are merged so that the order of each is kept.
    """
    order: list[str] = []
    for program in built.covering:
        at = 0
        for block in program.blocks:
            if block in order:
                at = order.index(block) + 1
            else:
                order.insert(at, block)
                at += 1
    return order


def block_costs(
    built: Built, tensor: Callable[[str], Tensor], blocks: list[str], budget_s: float = 1.5
) -> dict[str, float]:
    """Seconds of forward and backward of each block for one micro-batch, mean over the candidates measured.

    Args:
        tensor: memory of a parameter or buffer by name; it is not changed.
        budget_s: stop measuring new archs after this long; blocks not seen get the mean of the others.
    """

    from sennit.executor.eager import EagerExecutor
    from sennit.space.names import canonical_names

    skeleton = copied(built.recordings.skeleton)
    names = canonical_names(skeleton)
    executor = EagerExecutor(skeleton, names, frozenset(), torch.device("cpu"))
    leaves: dict[str, Tensor] = {}
    trainable = {n for g in built.groups.all if g.kind == "parameters" for n in g.names}

    def slot(name: str) -> Tensor:
        if name not in leaves:
            held = tensor(name)
            leaves[name] = nn.Parameter(held) if name in trainable else held.clone()
        return leaves[name]

    x, _ = built.micro_batches(built.batches[0])[0]
    spent: dict[str, list[float]] = {}
    begin = time.perf_counter()
    with generators_restored():
        for program in built.covering:
            if time.perf_counter() - begin > budget_s and spent:
                break
            _measure(built, executor, slot, program, x, spent)
    means = {block: sum(t) / len(t) for block, t in spent.items()}
    typical = sum(means.values()) / max(len(means), 1)
    return {block: means.get(block, typical) for block in blocks}


def _measure(
    built: Built, executor: Any, slot: Callable[[str], Tensor], program: Program, x: Any,
    spent: dict[str, list[float]],
) -> None:  # fmt: skip
    numbers = {block: i for i, block in enumerate(program.blocks)}
    runs = cut(program, [numbers[step.block] for step in program.steps])
    context = StepContext.of(built.recipe.seed, 0, 0, built.recipe.precision, torch.device("cpu"))
    inputs = bind_inputs(program, *as_call(x))
    held: dict[int, tuple[Any, bool]] = {}
    for run in runs:
        best = float("inf")
        for _ in range(2):  # the first pass warms up
            t = time.perf_counter()
            arrivals = {a.value: held[a.value] for a in run.arrivals}
            wanted = dict(inputs) if run.reads_input else {}
            loss = (lambda output: _surrogate(output)) if run.has_loss else None
            out, ctx = executor.forward(program, run, slot, arrivals, wanted, context, loss, lambda step: None)
            executor.backward(ctx, {v: [torch.ones_like(root)] for v, root in ctx.roots.items()})
            best = min(best, time.perf_counter() - t)
        for value, made in out.items():
            held[value] = (made, value in ctx.roots)
        spent.setdefault(program.blocks[run.part], []).append(best)


def _surrogate(output: Any) -> Tensor:
    from sennit.program.template import leaves

    tensors: list[Tensor] = [t for t in leaves(output) if isinstance(t, Tensor) and t.is_floating_point()]
    return torch.stack([t.float().mean() for t in tensors]).sum()
