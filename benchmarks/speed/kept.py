"""`Kept`: the initial weights of a recipe's supernet, drawn once for all runs of a command.

Every run begins with the same bits, and drawing billions of them takes longer than training. The process that starts
the runs draws them; a run is a forked child, which sees them, and copies them into memory of its own or its store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import sennit.runtime.pipeline
import sennit.supernet.build
from sennit.recipe import Recipe
from sennit.space.initialise import build_on_meta, initialise
from sennit.space.names import canonical_names, unique_tensors

COPIERS = 8
"""Threads that copy."""


DRAWING = (sennit.runtime.pipeline, sennit.supernet.build)
"""Modules in which runs find what draws their weights."""


class Kept:
    """Stands in for `initialise` in this process and its children.

    Attributes:
        nbytes: of the weights.
        wanted: whether runs need weights at all; on virtual devices they do not.
    """

    def __init__(self, recipe: Recipe) -> None:
        Kept.give_up()
        space = initialise(build_on_meta(recipe.built.space_factory, recipe.space_args), recipe.seed)
        self.held, self.seed, self.wanted = unique_tensors(space), recipe.seed, True
        self.nbytes = sum(tensor.nbytes for tensor in self.held.values())
        for module in DRAWING:
            module.initialise = self.initialise  # type: ignore[attr-defined]

    @staticmethod
    def give_up() -> None:
        """Runs draw their weights themselves again, and those that were kept are gone."""
        for module in DRAWING:
            module.initialise = initialise  # type: ignore[attr-defined]

    def initialise(
        self, space: nn.Module, seed: int, allocate: Callable[[str, Tensor], Tensor] | None = None, *others: Any
    ) -> nn.Module:
        """As `sennit.space.initialise.initialise`, whose other arguments say who draws."""
        if not self.wanted:
            return space
        assert seed == self.seed
        names = canonical_names(space)
        held = self.held if allocate is None else self.filled(allocate, dict.fromkeys(names.values()))
        for owner in space.modules():
            for table in (owner._parameters, owner._buffers):
                for attribute, tensor in table.items():
                    if tensor is not None:
                        table[attribute] = held[names[id(tensor)]]  # type: ignore[assignment]
        return space

    def filled(self, allocate: Callable[[str, Tensor], Tensor], names: dict[str, None]) -> dict[str, Tensor]:
        """Memory of each tensor, with its value."""
        memory: dict[str, Tensor] = {}
        before = torch.get_num_threads()
        torch.set_num_threads(max(before, COPIERS))
        with torch.no_grad():
            for name in names:
                held, made = self.held[name], allocate(name, self.held[name])
                made.copy_(held)
                trains = isinstance(held, nn.Parameter)
                memory[name] = nn.Parameter(made, requires_grad=held.requires_grad) if trains else made
        torch.set_num_threads(before)
        return memory
