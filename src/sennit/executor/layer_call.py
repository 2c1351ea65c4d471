"""`LayerCall`: the call of a layer on staging memory, which is what graphs of layers capture.

parameters ─▶ staging    input ─▶ staging    replay of the forward    what it wrote ─▶ buffers
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sennit.executor.capture import Capturing, Graph
from sennit.executor.eager import EagerExecutor, Gradients, RunContext
from sennit.executor.played import Found, Played
from sennit.executor.staging import Staging
from sennit.memory.parcel import Parcel, Targets, numbers, views
from sennit.program.step import Program, Step
from sennit.supernet.context import StepContext

TENSOR = object()
"""Stands for a tensor among what a step reads."""


class Unseeded(StepContext):
    """Captured kernels draw from a generator that is seeded before each replay."""

    def enter(self, step_key: int, *, torch_only: bool = False) -> None:
        pass


@dataclass(frozen=True)
class Layer:
    """A step to be captured, with what it finds now.

    Attributes:
        names: of `held`.
        held: the tensors that the step holds (parameters and buffers), in the order of its tables.
        reads: what the step reads; sizes as tuples.
        wanted: of each of `reads`, whether a gradient goes back.
    """

    program: Program
    step: Step
    names: tuple[str, ...]
    held: Sequence[Tensor]
    reads: Sequence[Any]
    wanted: tuple[bool, ...]
    context: StepContext


class LayerCall(ABC):
    """Captured for one step, replayed for all of its kind.

    Args:
        staging: that graphs share.
        own: for what the step reads and writes; `staging`, if that may change as soon as a replay has ended.
        weights: for what it holds and does not write.
    """

    forward: Graph
    backward: Graph | None = None
    """None if no output needs a gradient."""
    splits: bool = False
    """Whether gradients of inputs and those of parameters are two replays."""
    lends: frozenset[int] = frozenset()
    """Storages of what it gives that stay its own, and change when it is played again."""

    def __init__(
        self, device: Capturing, staging: Staging, own: Staging, weights: Staging, executor: EagerExecutor, layer: Layer
    ) -> None:
        self.device, self.staging = device, staging
        step, names, held, reads = layer.step, layer.names, layer.held, layer.reads
        self.parcels: tuple[Parcel, ...] = staging.parcels(held)
        self.firsts = tuple(parcel.members[0] for parcel in self.parcels)
        self.moving = tuple(
            k for k, parcel in enumerate(self.parcels) if any(names[i] in step.written for i in parcel.members)
        )  # fmt: skip
        self.written = tuple(
            k for k in self.moving
            if any(names[i] in step.written and names[i] not in executor.kept for i in self.parcels[k].members)
        )  # fmt: skip
        self.stage = [
            (own if k in self.moving else weights).bytes(f"held {k}", p.places, p.nbytes)
            for k, p in enumerate(self.parcels)
        ]
        self.trains = frozenset(i for i, tensor in enumerate(held) if tensor.requires_grad)
        self.own = self.unpacked(self.stage)
        self.wanted = layer.wanted
        tensors = [t for t in reads if isinstance(t, Tensor)]
        self.inputs = [own.tensor(f"read {i}", t) for i, t in enumerate(reads) if isinstance(t, Tensor)]
        self._sizes = [TENSOR if isinstance(t, Tensor) else t for t in reads]
        places = [k for k, read in enumerate(reads) if isinstance(read, Tensor)]
        self._wanted_reads = [(k, i) for i, k in enumerate(places) if layer.wanted[k]]
        self._trained = sorted(self.trains)
        self._step, self._program, self._executor = step, layer.program, executor
        self._slot = dict(zip(names, self.own, strict=True))
        self._context = Unseeded(0, layer.context.precision, layer.context.device)
        self._keys = {name: i for i, name in reversed(list(enumerate(names)))}
        self.out_wanted: tuple[bool, ...] = ()
        self._filled = [numbers(t) for t in (*self.stage, *self.inputs)]
        self._all = Targets(self._filled)
        self._all.fill([*self.lying(held), *(numbers(t) for t in tensors)])

    def _run(self) -> tuple[RunContext, list[Tensor], list[Tensor]]:
        """The step on staging: its context, the leaves of `inputs`, what it gives."""
        step, ctx = self._step, RunContext()
        tensors = iter(self.inputs)
        values: dict[int, object] = {}
        leaves: list[Tensor] = []
        for n, read, wanted in zip(step.reads, self._sizes, self.wanted, strict=True):
            value: object = read
            if read is TENSOR:
                value = leaf = next(tensors).detach()
                leaves.append(leaf.requires_grad_() if wanted else leaf)
            values[n] = value
        self._executor.step(self._program, step, self._slot.__getitem__, values, self._context, ctx)
        made = [values[n] for n in step.writes]
        assert all(isinstance(t, Tensor) for t in made)
        return ctx, leaves, made  # type: ignore[return-value]

    def _gradients(
        self, ctx: RunContext, leaves: Sequence[Tensor], made: Sequence[Tensor], given: Sequence[Tensor]
    ) -> tuple[list[Tensor | None], dict[int, Tensor]]:
        """Of what was read, None where there is none; and of what is held, by number."""
        roots = [t for t in made if t.requires_grad]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        found = torch.autograd.grad(
            roots, [*wanted, *ctx.parameter_leaves.values()], given, allow_unused=True
        )  # fmt: skip
        arrived = iter(found)
        inputs = [next(arrived) if leaf.requires_grad else None for leaf in leaves]
        named = zip(ctx.parameter_leaves, arrived, strict=True)
        return inputs, {self._keys[name]: grad for (name, _), grad in named if grad is not None}

    def _memory_for_given(self, outs: Sequence[Tensor], staging: Staging) -> list[Tensor]:
        """Staging for the gradients of outputs. Filled and read by one replay, it may be shared by all graphs."""
        return [
            staging.tensor(f"given {i}", out)
            for i, (out, wanted) in enumerate(zip(outs, self.out_wanted, strict=True))
            if wanted
        ]

    # -- memory

    def unpacked(self, flats: Sequence[Tensor]) -> list[Tensor]:
        """Tensors inside the bytes of parcels, as leaves."""
        found: dict[int, Tensor] = {}
        for parcel, flat in zip(self.parcels, flats, strict=True):
            found.update(zip(parcel.members, views(flat, parcel.places), strict=True))
        return [found[i].requires_grad_(i in self.trains) for i in range(len(found))]

    def lying(self, held: Sequence[Tensor]) -> list[Tensor]:
        """Bytes of each parcel of a layer, where they lie.

        Args:
            held: all that the layer holds.
        """
        return [parcel.of(held[i]) for parcel, i in zip(self.parcels, self.firsts, strict=True)]

    def copies(self, held: Sequence[Tensor]) -> list[Tensor]:
        """Copies of the tensors of a layer, lying as they do."""
        return self.unpacked([flat.clone() for flat in self.lying(held)])

    # -- replaying

    def play(self, flats: list[Tensor], reads: list[Any], context: StepContext, step: Step) -> Played:
        """Run the forward of a layer of this kind.

        Args:
            flats: bytes of each parcel, where they lie.
        """
        tensors = [numbers(read) for read in reads if isinstance(read, Tensor)]
        played = Played(self, step, reads, tensors, flats, {k: flats[k].clone() for k in self.written}, context)
        self._fill(flats, tensors)
        self.device.seed(played.key)
        self.forward.replay()
        for k in self.written:
            flats[k].copy_(self._filled[k])
        self._finish(played)
        return played

    def _fill(self, flats: list[Tensor], tensors: list[Tensor]) -> None:
        """Bring what the forward reads."""
        self._all.fill([*flats, *tensors])

    @abstractmethod
    def _finish(self, played: Played) -> None:
        """Say what a forward gave."""

    @abstractmethod
    def play_back(self, played: Played, given: Sequence[Tensor]) -> Found:
        """Run the backward.

        Args:
            given: gradient of each output that wants one.
        """

    def give_back(self, played: Played) -> None:  # noqa: B027 - most keep nothing
        """Nothing of this forward is needed any more."""

    def named(self, step: Step, names: Sequence[str], tied: frozenset[str], back: Found) -> Gradients:
        """What a backward gives, by the names of the step that was played."""
        return Gradients(self.values(step, back), self.parameters(step, names, tied, back))

    def values(self, step: Step, back: Found) -> dict[tuple[int, int], Tensor | None]:
        """Gradients of what was read. Of a value that is read twice, the last one has all."""
        reads, at = step.reads, step.index
        return {(reads[k], at): back.inputs[i] for k, i in self._wanted_reads}

    def parameters(
        self, step: Step, names: Sequence[str], tied: frozenset[str], back: Found
    ) -> dict[tuple[str, int], Tensor | None]:  # fmt: skip
        """Gradients of what it trains.

        Args:
            tied: names that several steps use.
        """
        at, found = step.index, back.parameters
        if tied:
            return {(names[i], at if names[i] in tied else -1): found.get(i) for i in self._trained}
        return {(names[i], -1): found.get(i) for i in self._trained}
