"""`LayerGraph`: one kind of layer at one shape, captured over staging memory.

    forward    parameters ─▶ staging    input ─▶ staging    replay    staging ─▶ output
    backward   parameters ─▶ staging    input ─▶ staging    replay    staging ─▶ gradients
                                        gradient of the output ─▶ staging

The backward computes the layer again: nothing is kept of the forward but its input, the memory in which its parameters
lie, which stay as they are until the backward is done, and a copy of the buffers that it writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sennit.executor.capture import Capturing, Graph
from sennit.executor.eager import EagerExecutor, RunContext
from sennit.executor.staging import Staging
from sennit.memory.parcel import Parcel, Place, copy, numbers, views, windows
from sennit.program.step import Program, Step
from sennit.supernet.context import StepContext
from sennit.supernet.keys import mix, name_key

TENSOR = object()
"""Stands for a tensor among what a step reads."""


class Unseeded(StepContext):
    """Captured kernels draw from a generator that is seeded before each replay."""

    def enter(self, step_key: int, *, torch_only: bool = False) -> None:
        pass


@dataclass
class Played:
    """What the backward of a replayed layer needs.

    Attributes:
        reads: what it read; sizes as tuples.
        tensors: those of `reads` that are tensors, as numbers.
        held: bytes of each parcel, where they lie.
        buffers: bytes of the parcels that the forward wrote, as they were before, by number of the parcel.
        context: of its draws.
    """

    graph: LayerGraph
    step: Step
    reads: list[Any]
    tensors: list[Tensor]
    held: list[Tensor]
    buffers: dict[int, Tensor]
    context: StepContext

    @property
    def key(self) -> int:
        return mix(self.context.key, name_key(self.step.name))

    def again(self) -> list[Tensor]:
        """Copies of the tensors that the layer held in its forward."""
        return self.graph.unpacked([self.buffers.get(k, flat).clone() for k, flat in enumerate(self.held)])


@dataclass
class Found:
    """What a backward gives.

    Attributes:
        inputs: gradient of each tensor read; None where none is wanted or there is none.
        flats: of each parcel with gradients, their bytes in the layout of the parameters.
        parameters: number of the tensor to its gradient, inside `flats`.
    """

    inputs: list[Tensor | None]
    flats: list[Tensor] = field(default_factory=list[Tensor])
    parameters: dict[int, Tensor] = field(default_factory=dict[int, Tensor])


class LayerGraph:
    """Captured for one step, replayed for all of its kind.

    Args:
        held: the tensors that the step holds (parameters and buffers), in the order of its tables.
        names: of `held`.
        reads: what the step reads; sizes as tuples.
        wanted: of each of `reads`, whether a gradient goes back.
    """

    def __init__(
        self, device: Capturing, staging: Staging, executor: EagerExecutor, program: Program, step: Step,
        names: tuple[str, ...], held: Sequence[Tensor], reads: Sequence[Any], wanted: Sequence[bool],
        context: StepContext,
    ) -> None:  # fmt: skip
        self.device, self.staging = device, staging
        self.parcels: tuple[Parcel, ...] = staging.parcels(held)
        self.stage = [staging.bytes(f"held {i}", p.places, p.nbytes) for i, p in enumerate(self.parcels)]
        self.trains = frozenset(i for i, tensor in enumerate(held) if tensor.requires_grad)
        self.own = self.unpacked(self.stage)
        self.wanted = tuple(wanted)
        self.inputs = [staging.tensor(f"read {i}", t) for i, t in enumerate(reads) if isinstance(t, Tensor)]
        self._sizes = [TENSOR if isinstance(t, Tensor) else t for t in reads]
        self._step, self._program, self._executor = step, program, executor
        self._slot = dict(zip(names, self.own, strict=True))
        self._context = Unseeded(0, context.precision, context.device)
        kept = executor.kept
        self.written = tuple(
            k for k, parcel in enumerate(self.parcels)
            if any(names[i] in step.written and names[i] not in kept for i in parcel.members)
        )  # fmt: skip
        self._keys = {name: i for i, name in reversed(list(enumerate(names)))}
        self.out_wanted: tuple[bool, ...] = ()
        self.outs: list[Tensor] = []
        self.given: list[Tensor] = []
        self.gradients: list[Tensor | None] = []
        self.flats: dict[int, Tensor] = {}
        self.members: dict[int, tuple[tuple[int, Place], ...]] = {}
        self._reached: set[int] = set()
        self.reached: dict[int, list[tuple[int, Place]]] = {}
        """Of each parcel, the members that have gradients."""
        self.firsts = tuple(parcel.members[0] for parcel in self.parcels)
        self._filled = [numbers(t) for t in (*self.stage, *self.inputs)]
        tensors = [t for t in reads if isinstance(t, Tensor)]
        copy(self._filled, [*self.lying(held), *(numbers(t) for t in tensors)])
        self.forward: Graph = device.capture(self._forward)
        self.backward: Graph | None = None
        if any(self.out_wanted):
            self._prepare_backward()
            self.backward = device.capture(self._backward)
            self._filled_back = [*self._filled, *map(numbers, self.given)]
            self._results = [numbers(t) for t in (*(g for g in self.gradients if g is not None), *self.flats.values())]
            self.reached = {k: [(i, p) for i, p in t if i in self._reached] for k, t in self.members.items()}

    # -- what is captured

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

    def _forward(self) -> None:
        _, _, made = self._run()
        if not self.outs:
            self.out_wanted = tuple(t.requires_grad for t in made)
            self.outs = [self.staging.tensor(f"gives {i}", t) for i, t in enumerate(made)]
        for out, tensor in zip(self.outs, made, strict=True):
            out.copy_(tensor.detach())

    def _prepare_backward(self) -> None:
        """Memory for gradients. They lie like the parameters, so that one copy takes them all."""
        self.given = [
            self.staging.tensor(f"given {i}", out)
            for i, (out, wanted) in enumerate(zip(self.outs, self.out_wanted, strict=True))
            if wanted
        ]
        wanted = [w for w, read in zip(self.wanted, self._sizes, strict=True) if read is TENSOR]
        self.gradients = [
            self.staging.tensor(f"gradient {i}", read) if w else None
            for i, (read, w) in enumerate(zip(self.inputs, wanted, strict=True))
        ]
        for k, parcel in enumerate(self.parcels):
            trained = tuple(
                (i, place) for i, place in zip(parcel.members, parcel.places, strict=True) if self.own[i].requires_grad
            )
            if trained:
                self.flats[k] = self.staging.bytes(f"gradients {k}", parcel.places, parcel.nbytes)
                self.members[k] = trained

    def _backward(self) -> None:
        ctx, leaves, made = self._run()
        roots = [t for t in made if t.requires_grad]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        keys = list(ctx.parameter_leaves)
        found = torch.autograd.grad(
            roots, [*wanted, *ctx.parameter_leaves.values()], self.given, allow_unused=True
        )  # fmt: skip
        arrived = iter(found)
        for n, leaf in enumerate(leaves):
            if leaf.requires_grad:
                grad = next(arrived)
                target = self.gradients[n]
                if grad is None or target is None:
                    self.gradients[n] = None
                else:
                    target.copy_(grad)
        places = {i: (k, place) for k, trained in self.members.items() for i, place in trained}
        targets: list[Tensor] = []
        sources: list[Tensor] = []
        for (name, _), grad in zip(keys, arrived, strict=True):
            i = self._keys[name]
            k, place = places[i]
            if grad is not None:
                self._reached.add(i)
                targets += views(self.flats[k], [place])
                sources.append(grad)
        if targets:
            torch._foreach_copy_(targets, sources)  # pyright: ignore[reportPrivateImportUsage] - few kernels for all

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
        """Run the forward of a layer of this kind; what it gives is in `outs`.

        Args:
            flats: bytes of each parcel, where they lie.
        """
        tensors = [numbers(read) for read in reads if isinstance(read, Tensor)]
        played = Played(self, step, reads, tensors, flats, {k: flats[k].clone() for k in self.written}, context)
        copy(self._filled, [*flats, *tensors])
        self.device.seed(played.key)
        self.forward.replay()
        for k in self.written:
            flats[k].copy_(self._filled[k])
        return played

    def given_out(self) -> list[Tensor]:
        """What the last forward gave, out of staging."""
        return [out.clone() for out in self.outs]

    def play_back(self, played: Played, given: Sequence[Tensor]) -> Found:
        """Run the backward.

        Args:
            given: gradient of each output that wants one.
        """
        assert self.backward is not None
        flats = [played.buffers.get(k, flat) for k, flat in enumerate(played.held)] if played.buffers else played.held
        copy(self._filled_back, [*flats, *played.tensors, *map(numbers, given)])
        self.device.seed(played.key)
        self.backward.replay()
        own = [torch.empty_like(t) for t in self._results]
        copy(own, self._results)
        rest = iter(own)
        found = Found([None if g is None else next(rest).view(g.dtype) for g in self.gradients])
        for trained, flat in zip(self.reached.values(), rest, strict=True):
            found.flats.append(flat)
            found.parameters.update(zip((i for i, _ in trained), windows(flat, [p for _, p in trained]), strict=True))
        return found
