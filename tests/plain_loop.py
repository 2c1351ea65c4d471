"""The loop of the README, on the public API: what every engine must equal."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import sennit as sn


def run_plain(recipe: sn.Recipe, steps: int | None = None) -> tuple[nn.Module, torch.optim.Optimizer, list[Any]]:
    """Returns model, optimizer and the tasks, whose losses are reported."""
    model = recipe.build_model()
    optimizer = recipe.build_optimizer(model)
    tasks: list[Any] = []
    for task in recipe.tasks(steps):
        for j, (x, y) in enumerate(task.micro_batches):
            with sn.keyed_rng(task, j):
                loss = recipe.loss(model(x, arch=task.arch), y, task, j)
                loss.backward()
            task.report(j, loss)
        task.set_lr(optimizer)
        task.clip_(model)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        tasks.append(task)
    return model, optimizer, tasks
