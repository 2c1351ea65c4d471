"""`LayerGraph`: one kind of layer at one shape, captured over staging memory.

    forward    parameters ─▶ staging    input ─▶ staging    replay    staging ─▶ output
    backward   parameters ─▶ staging    input ─▶ staging    replay    staging ─▶ gradients
                                        gradient of the output ─▶ staging

The backward computes the layer again: nothing is kept of the forward but its input, the memory in which its parameters
lie, which stay as they are until the backward is done, and a copy of the buffers that it writes. So one graph serves
all layers of its kind, however many wait for their backward. `KeptGraph` is the other way.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sennit.executor.capture import Capturing
from sennit.executor.eager import EagerExecutor
from sennit.executor.layer_call import TENSOR, Layer, LayerCall
from sennit.executor.played import Found, Played
from sennit.executor.staging import Staging
from sennit.memory.parcel import Place, Targets, copy, numbers, views, windows


class LayerGraph(LayerCall):
    """Captured for one step, replayed for all of its kind."""

    def __init__(self, device: Capturing, staging: Staging, executor: EagerExecutor, layer: Layer) -> None:
        super().__init__(device, staging, staging, staging, executor, layer)
        self.outs: list[Tensor] = []
        self.given: list[Tensor] = []
        self.gradients: list[Tensor | None] = []
        self.flats: dict[int, Tensor] = {}
        self.members: dict[int, tuple[tuple[int, Place], ...]] = {}
        self._reached: set[int] = set()
        self.reached: list[tuple[tuple[int, ...], tuple[Place, ...]]] = []
        """Of each parcel, the members that have gradients."""
        self.forward = device.capture(self._forward)
        if any(self.out_wanted):
            self._prepare_backward()
            self.backward = device.capture(self._backward)
            self._all_back = Targets([*self._filled, *map(numbers, self.given)])
            self._results = [numbers(t) for t in (*(g for g in self.gradients if g is not None), *self.flats.values())]
            reached = [[(i, place) for i, place in t if i in self._reached] for t in self.members.values()]
            self.reached = [(tuple(i for i, _ in there), tuple(place for _, place in there)) for there in reached]

    @property
    def least_kept(self) -> int:
        """Bytes that a `KeptGraph` of this kind takes at least, beside its parameters."""
        return sum(t.nbytes for t in (*(self.stage[k] for k in self.moving), *self.inputs, *self.outs))

    @property
    def weights_nbytes(self) -> int:
        """Bytes of the parameters of a `KeptGraph` of this kind."""
        return sum(flat.nbytes for k, flat in enumerate(self.stage) if k not in self.moving)

    # -- what is captured

    def _forward(self) -> None:
        _, _, made = self._run()
        if not self.outs:
            self.out_wanted = tuple(t.requires_grad for t in made)
            self.outs = [self.staging.tensor(f"gives {i}", t) for i, t in enumerate(made)]
        for out, tensor in zip(self.outs, made, strict=True):
            out.copy_(tensor.detach())

    def _prepare_backward(self) -> None:
        """Memory for gradients. They lie like the parameters, so that one copy takes them all."""
        self.given = self._memory_for_given(self.outs, self.staging)
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
        inputs, held = self._gradients(*self._run(), self.given)
        for n, grad in enumerate(inputs):
            target = self.gradients[n]
            if grad is None or target is None:
                self.gradients[n] = None
            else:
                target.copy_(grad)
        places = {i: (k, place) for k, trained in self.members.items() for i, place in trained}
        targets: list[Tensor] = []
        for i in held:
            k, place = places[i]
            self._reached.add(i)
            targets += views(self.flats[k], [place])
        if targets:
            torch._foreach_copy_(targets, [*held.values()])  # pyright: ignore[reportPrivateImportUsage] - few kernels

    # -- replaying

    def _finish(self, played: Played) -> None:
        played.outs = [out.clone() for out in self.outs]

    def play_back(self, played: Played, given: Sequence[Tensor]) -> Found:
        """As `LayerCall.play_back`; all that it gives is the caller's."""
        assert self.backward is not None
        flats = [played.buffers.get(k, flat) for k, flat in enumerate(played.held)] if played.buffers else played.held
        self._all_back.fill([*flats, *played.tensors, *map(numbers, given)])
        self.device.seed(played.key)
        self.backward.replay()
        own = [torch.empty_like(t) for t in self._results]
        copy(own, self._results)
        rest = iter(own)
        found = Found([None if g is None else next(rest).view(g.dtype) for g in self.gradients])
        for (members, places), flat in zip(self.reached, rest, strict=True):
            found.parameters.update(zip(members, windows(flat, places), strict=True))
        return found
