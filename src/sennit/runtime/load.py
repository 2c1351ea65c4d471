"""Loading what a run has trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sennit.errors import UserError
from sennit.recipe import Recipe
from sennit.runtime import checkpoint
from sennit.runtime.going_on import refuse_torn
from sennit.runtime.runfolder import RunFolder
from sennit.space.initialise import build_on_meta
from sennit.space.model_space import ModelSpace
from sennit.space.names import canonical_names, unique_tensors
from sennit.supernet.optim import DelayedStep


@dataclass(frozen=True)
class LoadedRun:
    """A run folder's recipe and newest checkpoint."""

    folder: RunFolder
    recipe: Recipe
    run: dict[str, Any]
    state: checkpoint.Loaded

    def model(self) -> ModelSpace:
        """The trained supernet, with gradients that waited under `delayed:K` applied."""
        return model_of(self.recipe, self.state.weights, self.state.optimizer, self.state.seq_id)

    def refuse_other_space(self) -> None:
        """Refuse if the space has other parameters and buffers than those that were trained.

        Raises:
            UserError: names the first that differs.
        """
        built, held = self.recipe.built, self.state.weights
        for name, tensor in unique_tensors(built.skeleton).items():
            was = tuple(held[name].shape) if name in held else None
            if was != tuple(tensor.shape):
                now = f"has shape {list(tensor.shape)}"
                then = "did not exist" if was is None else f"had {list(was)}"
                changed = ", ".join(built.changed_sources(self.state.state.get("sources", {})))
                raise UserError(
                    f"{self.folder.path}: {name} {now} and {then} when it was trained{'; ' if changed else ''}"
                    f"{changed}{' has other code now' if changed else ''}. Put the old space back to use this run"
                )

    def refuse_other_code(self) -> None:
        """Refuse if a file that the recipe names has other code than when the run was trained: what the same weights
        give then, on whatever data, is nothing that was trained.

        Raises:
            UserError: names the files.
        """
        if changed := self.recipe.built.changed_sources(self.state.state.get("sources", {})):
            raise UserError(
                f"{self.folder.path}: {', '.join(changed)}: the code has changed since the checkpoint at subnet "
                f"{self.state.seq_id}, so its weights would be used by what they were not trained with. Put the old "
                "code back to use this run, or train again with another --out"
            )


def load_run(path: Path | str) -> LoadedRun:
    """Open a run folder for reading.

    Raises:
        UserError: it is no run folder, has no checkpoint, or was trained with other code.
        CheckpointError: its newest checkpoint is damaged.
    """
    folder = RunFolder.open(path)
    run = folder.read_run()
    recipe = Recipe.from_dict(run["recipe"], run["base"], str(folder.path / "run.json"))
    state = checkpoint.newest(folder.checkpoints, recipe.identity(), recipe.to_dict())
    if state is None:
        ended = folder.read_result()
        if ended and ended["steps"] and ended["weights_sha256"]:  # one that trains and ends saves one
            raise UserError(
                f"{folder.path} has a result, and no checkpoint any more; put its folder checkpoints back, or train "
                "again with another --out"
            )
        raise UserError(f"{folder.path} has no checkpoint yet; train it first, or lower [checkpoint] every")
    loaded = LoadedRun(folder, recipe, run, state)
    loaded.refuse_other_space()
    loaded.refuse_other_code()
    refuse_torn(recipe, state)
    return loaded


def model_of(recipe: Recipe, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], done: int) -> ModelSpace:
    """A copy of the supernet with these weights.

    Args:
        optimizer: for gradients that wait: they are applied here, each with the rate of the step it was due at.
        done: number of finished subnets.
    """
    built = recipe.built
    space = build_on_meta(built.space_factory, recipe.space_args)
    assert isinstance(space, ModelSpace)
    names = canonical_names(space)
    real: dict[int, Tensor] = {}
    keep: list[Any] = []
    for module in space.modules():
        for table in (module._parameters, module._buffers):
            for attribute, tensor in table.items():
                if tensor is None:
                    continue
                keep.append(tensor)
                if id(tensor) not in real:
                    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
                    copy.copy_(weights[names[id(tensor)]])
                    parameter = isinstance(tensor, torch.nn.Parameter)
                    real[id(tensor)] = (
                        torch.nn.Parameter(copy, requires_grad=tensor.requires_grad) if parameter else copy
                    )
                table[attribute] = real[id(tensor)]  # type: ignore[assignment]
    object.__setattr__(space, "_recordings", built.recordings)
    if recipe.sharing.kind == "delayed":
        _flush(recipe, space, optimizer, done)
    return space


def _flush(recipe: Recipe, space: ModelSpace, held: Mapping[str, Tensor], done: int) -> None:
    optimizer = recipe.build_optimizer(space)
    delayed = optimizer.delayed  # type: ignore[attr-defined]
    assert isinstance(delayed, DelayedStep)
    tensors = unique_tensors(space)
    waiting: dict[int, dict[str, Tensor | None]] = {}
    for key, value in held.items():
        name, _, last = key.rpartition(".")
        if name.endswith(".pending"):
            waiting.setdefault(int(last), {})[name.removesuffix(".pending")] = value.clone()
        elif name in delayed.parameters:
            parameter = tensors[name]
            optimizer.state[parameter][last] = value.clone().reshape(value.shape)
    for seq_id in sorted(waiting):
        grads = waiting[seq_id]
        delayed.pending.append((seq_id, {name: grads.get(name) for name in delayed.parameters}))
    delayed.flush(recipe.lr_of, optimizer)
