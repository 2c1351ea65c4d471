"""`retrain`: one network, trained alone from fresh weights, by the plain loop of the recipe."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from sennit.data.order import KeyedBatches
from sennit.errors import NanLossError, UserError
from sennit.explore.heldout import moved
from sennit.program.groups import Groups
from sennit.space.choice import Arch
from sennit.supernet.build import Built
from sennit.supernet.lr import LrSchedule
from sennit.supernet.not_finite import advice
from sennit.supernet.samplers import Result
from sennit.supernet.task import keyed_rng

if TYPE_CHECKING:
    from sennit.recipe import Recipe


@dataclass(frozen=True)
class Retrained:
    """A network trained alone.

    Attributes:
        model: the space; of its weights only those of the arch are trained.
        recipe: what was run; its identity names the arch, the seed, the steps and the learning rate.
        losses: per step.
    """

    model: nn.Module
    recipe: Recipe
    losses: list[float]


def retrain(
    recipe: Recipe,
    arch: Arch,
    *,
    seed: int,
    steps: int | None = None,
    epochs: float | None = None,
    lr: float | LrSchedule | None = None,
    split: str = "train",
    device: torch.device | str = "cpu",
    on_step: Callable[[int, float], None] | None = None,
) -> Retrained:
    """Train `arch` from initial weights keyed by `seed`. The same arguments give the same bits.

    Always-shared layers are trained as all others ("strict"): there is only one network.

    Args:
        recipe: of the supernet; all that is not overridden here is kept.
        seed: of weights, data order and random draws.
        steps: how many; the recipe's if neither this nor `epochs` is given. Schedules run over them.
        epochs: passes through the data set, rounded up to steps.
        lr: instead of the recipe's.
        split: what to train on, as "train+valid".
        on_step: called after each step with its number and loss.

    Raises:
        ArchError: an arch that the space does not have.
        UserError: both steps and epochs, or a value that the recipe does not allow.
        NanLossError: the loss is not finite.
    """
    device = torch.device(device)
    recipe = alone(recipe, arch, seed=seed, steps=steps, epochs=epochs, lr=lr, split=split)
    model = recipe.build_model().to(device)
    optimizer = recipe.build_optimizer(model)
    losses: list[float] = []
    for task in recipe.tasks():
        task.micro_batches = [moved(batch, device) for batch in task.micro_batches]
        for j, (x, y) in enumerate(task.micro_batches):
            with keyed_rng(task, j):
                loss = recipe.loss(model(x, arch=task.arch), y, task, j)
                loss.backward()
            task.report(j, loss)
            if not math.isfinite(task.reported[j]):
                what = advice(recipe, task.seq_id, j)
                raise NanLossError(f"the loss of step {task.seq_id} is {task.reported[j]}. {what}", task.seq_id, j)
        task.set_lr(optimizer)
        task.clip_(model)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(task.loss)
        if on_step is not None:
            on_step(task.seq_id, task.loss)
    return Retrained(model, recipe, losses)


def alone(
    recipe: Recipe,
    arch: Arch,
    *,
    seed: int,
    steps: int | None = None,
    epochs: float | None = None,
    lr: float | LrSchedule | None = None,
    split: str = "train",
) -> Recipe:
    """The recipe that trains nothing but `arch`. Arguments as of `retrain`.

    Its sampler is no name that a file could hold, so it can be run in this process only.
    """
    arch = recipe.built.looked_at(dict(arch)).arch
    if steps is not None and epochs is not None:
        raise UserError(f"give either steps or epochs, got steps = {steps} and epochs = {epochs}")
    if epochs is not None:
        steps = _steps(recipe, split, epochs)
    named = f"only:{json.dumps(arch, sort_keys=True)}:{split}"  # makes the identity its own
    one = replace(
        recipe, sampler=named, seed=seed, shared="strict",
        steps=recipe.steps if steps is None else steps, lr=recipe.lr if lr is None else lr,
    )  # fmt: skip
    one.__dict__["built"] = _BuiltAlone(one, arch, split)
    return one


def _steps(recipe: Recipe, split: str, epochs: float) -> int:
    dataset = recipe.built.dataset(split)
    if hasattr(dataset, "batch"):
        raise UserError("this data set forms its own batches, so an epoch has no fixed length; give steps")
    if not epochs > 0:
        raise UserError(f"epochs must be above 0, got {epochs}")
    return math.ceil(epochs * len(dataset) / recipe.batch_size)


class _Only:
    """The sampler that always draws the same arch."""

    learning = False

    def __init__(self, arch: dict[str, Any]) -> None:
        self.arch = arch

    def draw(self, seq_id: int, results: list[Result]) -> dict[str, Any]:
        return dict(self.arch)


class _BuiltAlone(Built):
    def __init__(self, recipe: Recipe, arch: dict[str, Any], split: str) -> None:
        super().__init__(recipe)
        self.arch, self.split = arch, split

    def sampler(self) -> _Only:
        return _Only(self.arch)

    @cached_property
    def groups(self) -> Groups:
        with self.recordings.covering():  # alone it may write what it does in no other network
            self.program(self.arch)
        return super().groups

    @cached_property
    def batches(self) -> KeyedBatches:
        return KeyedBatches(self.dataset(self.split), self.recipe.batch_size, self.recipe.seed)
