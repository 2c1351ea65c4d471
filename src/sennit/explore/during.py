"""`evaluate_now`: a look at the supernet while it trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from sennit.explore.archs import Draws, random_arch
from sennit.explore.evaluate import Evaluation, Evaluator, as_space
from sennit.explore.metrics import Objective
from sennit.supernet.keys import key_for

if TYPE_CHECKING:
    from sennit.recipe import Recipe


def due(recipe: Recipe, seq_id: int) -> bool:
    """Whether the recipe asks for an evaluation after subnet `seq_id`."""
    every = recipe.evaluate.every
    return every > 0 and (seq_id + 1) % every == 0


def evaluate_now(
    recipe: Recipe, model_copy: nn.Module, seq_id: int, device: torch.device | str = "cpu"
) -> dict[str, Any]:
    """Score the recipe's fixed archs, and random ones keyed by `seq_id`, on held-out data.

    Loss and accuracy only: a data set's own `score` may take long. The model, the stream of training batches
    and the generators of the process are left as they were.

    Args:
        recipe: its `[evaluate]` table says on what, and with how many archs.
        model_copy: weights after subnet `seq_id`, with what a delayed policy holds back applied.

    Returns:
        JSON-safe: `seq_id`, `metric` ("accuracy", or "loss" where there is none), its `mean` and `best`
        over the networks, and `scores`: a list of `{"arch": ..., "metrics": {...}}`, fixed archs first.

    Raises:
        ArchError: a fixed arch that the space does not have.
        UserError: no held-out data.
    """
    space = as_space(model_copy)
    vars(space).setdefault("_recordings", recipe.built.recordings)  # a copy has lost them
    evaluator = _evaluator(recipe, device)
    archs = [*recipe.evaluate.archs]
    for i in range(recipe.evaluate.random):
        archs.append(random_arch(space.structure, Draws(key_for(recipe.seed, "evaluate now", seq_id, i))))
    scores = []
    for arch in archs:
        metrics = evaluator.measure(evaluator.prepared(space, arch))
        scores.append({"arch": evaluator.canonical(space, arch), "metrics": metrics})
    objective = Objective.parse(evaluator.default_objective, evaluator.modes)
    values = [objective.value(score["metrics"]) for score in scores]
    best = min(scores, key=lambda score: objective.rank(score["metrics"]), default=None)
    return {
        "seq_id": seq_id,
        "metric": objective.name,
        "mean": sum(values) / len(values) if values else None,
        "best": objective.value(best["metrics"]) if best else None,
        "scores": scores,
    }


def _evaluator(recipe: Recipe, device: torch.device | str) -> Evaluator:
    known: dict[str, Evaluator] = vars(recipe.built).setdefault("_evaluators", {})  # data is loaded once
    if str(device) not in known:
        rule = recipe.evaluate
        evaluation = Evaluation(split=rule.split, samples=rule.samples, recalibrate=rule.recalibrate, score=False)
        known[str(device)] = Evaluator(recipe, evaluation, device)
    return known[str(device)]
