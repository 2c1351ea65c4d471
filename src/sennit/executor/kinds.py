"""`Kinds`: what a step computes, apart from the numbers that it reads and holds, in a form that can be compared."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from torch import Tensor

from sennit.executor.eager import EagerExecutor
from sennit.memory.parcel import parcels
from sennit.program.sameness import same_call, same_module
from sennit.program.step import Step
from sennit.program.template import Ref


class Kinds:
    """Of the steps that an executor runs."""

    def __init__(self, eager: EagerExecutor) -> None:
        self.eager = eager
        self.known: dict[Hashable, tuple[Hashable, ...]] = {}
        self.holds: dict[str, tuple[str, ...]] = {}

    def holds_of(self, step: Step) -> tuple[str, ...]:
        """Names of the tensors that a module holds, each once, in the order of its tables."""
        names = self.holds.get(step.target)
        if names is None:
            names = self.holds[step.target] = tuple(dict.fromkeys(self.eager.held_by(step.target)))
        return names

    def of(self, step: Step, held: Sequence[Tensor]) -> tuple[Hashable, ...]:
        """Everything but shapes; looked at once per layer and way to call it, since that takes as long as ten replays.

        Raises:
            Unknown: that cannot be told.
        """
        trains = tuple(tensor.requires_grad for tensor in held)
        key = (step.name, call_of(step), trains)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = (self.of_module(step), same_call(step), _layout(held))
        return found

    def of_module(self, step: Step) -> Hashable:
        """What the module of a step computes, apart from the tensors that it holds.

        Raises:
            Unknown: that cannot be told.
        """
        names = self.holds_of(step)
        place = {name: i for i, name in enumerate(names)}
        pattern = tuple(place[name] for name in self.eager.held_by(step.target))
        written = tuple(place[name] for name in step.written if name in place)
        kept = tuple(name in self.eager.kept for name in names)
        return same_module(self.eager.modules[step.target]), pattern, written, kept


def shape_of(value: Any, wanted: bool) -> Hashable:
    """What of a value a graph depends on; sizes as they are."""
    return (value.shape, value.dtype, wanted) if isinstance(value, Tensor) else value


def call_of(step: Step) -> Hashable:
    """`same_call`, quickly where a module is called with what is read, in that order, and gives one tensor."""
    return step.no_grad if step.direct and type(step.out) is Ref else same_call(step)


def _layout(held: Sequence[Tensor]) -> Hashable:
    """How tensors lie, and which of them train."""
    return tuple((p.members, p.places) for p in parcels(held)), tuple(t.requires_grad for t in held)
