"""Before a graph is used: whether a replay gives the bits of an eager run of the same step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sennit.executor.eager import EagerExecutor
from sennit.executor.layer_call import Layer, LayerCall
from sennit.supernet.bits import same_bits

OTHER_KEY = 1
"""Seeds the device's generator between forward and backward, as the steps between them do."""


def proven(graph: LayerCall, eager: EagerExecutor, layer: Layer) -> bool:
    """Outputs, gradients, and the buffers that are written."""
    step, names = layer.step, layer.names
    ours, theirs = graph.copies(layer.held), graph.copies(layer.held)
    own: dict[int, Any] = dict(zip(step.reads, layer.reads, strict=True))
    wanted = dict(zip(step.reads, layer.wanted, strict=True))
    slot = dict(zip(names, theirs, strict=True)).__getitem__
    ctx = eager.alone(layer.program, step, slot, own, wanted, layer.context)
    played = graph.play(graph.lying(ours), [*layer.reads], layer.context, step)
    try:
        if not same_bits((played.outs, ours), ([own[n] for n in step.writes], theirs)):
            return False
        if tuple(n in ctx.roots for n in step.writes) != graph.out_wanted:
            return False
        if graph.backward is None:
            return True
        given = {n: torch.cos(own[n].float()).to(own[n].dtype) for n in ctx.roots}  # any dense numbers
        there = eager.backward(ctx, {n: [grad] for n, grad in given.items()})
        graph.device.seed(OTHER_KEY)
        back = graph.play_back(played, [*given.values()])
        here = graph.named(step, names, layer.program.tied, back)
        return _same(here.values, there.values) and _same(here.parameters, there.parameters)
    finally:
        played.give_back()


def _same(one: Mapping[Any, Tensor | None], two: Mapping[Any, Tensor | None]) -> bool:
    """Whether gradients are the same, and those that are missing."""
    return one.keys() == two.keys() and all(
        (one[key] is None) == (two[key] is None) and same_bits(one[key], two[key]) for key in one
    )
