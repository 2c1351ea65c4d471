"""`KeptGraph`: a layer captured so that its backward finds what its forward made.

    forward    parameters ─▶ weights        input ─▶ own staging    replay ─┬─▶ output, in own memory
                                                                            │ what autograd saves, in own memory
    backward   gradient of the output ─▶ staging                    replay ◀┘─▶ gradients, in own memory
               with --split two replays, I and W, and what W starts from is kept between them

Forward and backward are two captures in one pool of memory that nobody else uses, and the second differentiates what
the first has built, as `torch.cuda.make_graphed_callables` does it. Against `LayerGraph`: the forward is computed once,
parameters and input are copied once, and what goes on to a neighbour is copied where the neighbour needs it and nowhere
else. It is busy from a forward to its backward, so a kind has as many as wait at once (`executor/instances.py`).

Parameters are those of the forward until the backward is done, so they have staging of their own, too. All
micro-batches of a subnet read one version of a layer, so the graphs of one layer's micro-batches share it (`Weights`),
and only the first copies them.

Outputs and gradients are lent: they lie here until the next forward, those of parameters until its backward. Who uses
them longer copies them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import torch
from torch import Tensor

from sennit.executor.capture import Capturing
from sennit.executor.eager import EagerExecutor, RunContext
from sennit.executor.layer_call import Layer, LayerCall
from sennit.executor.played import Found, Played
from sennit.executor.staging import Staging
from sennit.memory.gradients import Laid, Lying
from sennit.memory.parcel import Targets, bundle, numbers, windows
from sennit.program.step import Step
from sennit.supernet.edge import settled


class Weights:
    """Staging for the parameters of one layer at a time.

    Attributes:
        of: whose parameters lie there, by subnet and step; None if that is not known.
        graphs: that read them.
    """

    def __init__(self, device: torch.device) -> None:
        self.memory = Staging(device)
        self.of: Hashable = None
        self.graphs: list[KeptGraph] = []

    @property
    def busy(self) -> bool:
        return any(graph.busy for graph in self.graphs)

    def free(self) -> KeptGraph | None:
        """A graph that is."""
        return next((graph for graph in self.graphs if not graph.busy), None)


class KeptGraph(LayerCall):
    """Captured for one step, replayed for all of its kind, for one of them at a time.

    Args:
        weights: where its parameters lie. If another graph that reads them is busy, `layer` is that one's.
        splits: capture gradients of inputs (I) and of parameters (W) apart.
        like: another one of the same kind: this one launches the same on other memory.

    Attributes:
        layer: for which it is played next, by subnet and step; None if that is not known.
        nbytes: of its own memory.
    """

    def __init__(
        self, device: Capturing, staging: Staging, executor: EagerExecutor, layer: Layer, weights: Weights,
        splits: bool = False, like: KeptGraph | None = None,
    ) -> None:  # fmt: skip
        self._memory, self.weights, self.splits = Staging(staging.device), weights, splits
        super().__init__(device, staging, self._memory, weights.memory, executor, layer)
        self.layer: Hashable = None
        self._few = Targets([self._filled[k] for k in self.moving] + self._filled[len(self.parcels) :])
        self.busy = False
        self.turn = 0
        self.outs: list[Tensor] = []
        self.given: list[Tensor] = []
        self.gradients: list[Tensor | None] = []
        self.found: dict[int, Tensor] = {}
        """Gradients of what is held, by number."""
        self._whole: dict[tuple[str, int], Tensor | None] = {}
        self._made: tuple[RunContext, list[Tensor], list[Tensor]] | None = None
        if like is not None:  # else the first run tells what to get
            self.out_wanted = like.out_wanted
            self.given = self._memory_for_given(like.outs, self._gets)
        if splits:
            chain = device.chain([self._forward, self._input, self._parameters], warm=like is not None)
            self.forward, self.backward, self.weight = chain.graphs
        else:
            chain = device.chain([self._forward, self._backward], warm=like is not None)
            self.forward, self.backward = chain.graphs
        self.nbytes = self._memory.nbytes + chain.nbytes
        self._given = Targets([numbers(t) for t in self.given])
        self._laid: dict[str, Laid] = {}
        """What it gives of the parameters of a step, by what that calls."""
        lent = (*self.outs, *(g for g in self.gradients if g is not None), *self.found.values())
        self.lends = frozenset(t.untyped_storage().data_ptr() for t in lent if t.numel())

    @property
    def _gets(self) -> Staging:
        """For gradients of outputs. W reads them, too, so that they must stay."""
        return self._memory if self.splits else self.staging

    # -- what is captured

    def _forward(self) -> None:
        self._made = self._run()
        made = self._made[2]
        self.out_wanted = tuple(t.requires_grad for t in made)
        self.outs = [settled(t.detach()) for t in made]

    def _backward(self) -> None:
        assert self._made is not None
        ctx, leaves, made = self._made
        self._made = None
        self.given = self.given or self._memory_for_given(self.outs, self._gets)
        inputs, sources = self._gradients(ctx, leaves, made, self.given)
        self._gather(sources)
        shared = {t.untyped_storage().data_ptr() for t in self.given}
        self.gradients = [None if g is None else _apart(settled(g), shared) for g in inputs]

    def _input(self) -> None:
        """I, as eager layers do it."""
        assert self._made is not None
        ctx, leaves, made = self._made
        self.given = self.given or self._memory_for_given(self.outs, self._gets)
        given = iter(self.given)
        ctx.roots = {n: t for n, t in enumerate(made) if t.requires_grad}
        ctx.value_leaves = {(n, 0): leaf for n, leaf in enumerate(leaves) if leaf.requires_grad}
        found = self._executor.backward_input(ctx, {n: [next(given)] for n in ctx.roots})
        self.gradients = [found.values.get((n, 0)) for n in range(len(leaves))]
        self._whole = found.parameters

    def _parameters(self) -> None:
        """W, and what I had to do of it."""
        assert self._made is not None
        ctx, self._made = self._made[0], None
        found = {**self._whole, **self._executor.backward_weight(ctx)}
        self._whole = {}
        self._gather({self._keys[name]: grad for (name, _), grad in found.items() if grad is not None})

    def _gather(self, sources: Mapping[int, Tensor]) -> None:
        """Gradients of parameters, beside one another as the parameters are: what adds them up, or sends them, is then
        one launch for all of a parcel."""
        self.found = {}
        for k, parcel in enumerate(self.parcels):
            there = [(i, p) for i, p in zip(parcel.members, parcel.places, strict=True) if i in sources]
            if there:
                whole = sum(self.own[i].nbytes for i, _ in there) == parcel.nbytes
                # numbers between tensors mean nothing, but they are added up like the others
                flat = (torch.empty_like if whole else torch.zeros_like)(self._filled[k])
                held = windows(flat, tuple(p for _, p in there), lent=True)
                self.found.update(zip((i for i, _ in there), held, strict=True))
        if self.found:  # few kernels for all
            torch._foreach_copy_([*self.found.values()], [sources[i] for i in self.found])  # pyright: ignore[reportPrivateImportUsage]

    # -- replaying

    def _fill(self, flats: list[Tensor], tensors: list[Tensor]) -> None:
        if self.layer is not None and self.weights.of == self.layer:
            self._few.fill([*(flats[k] for k in self.moving), *tensors])
            return
        super()._fill(flats, tensors)
        if self.layer is not None:
            self.weights.of = self.layer

    def _finish(self, played: Played) -> None:
        self.busy, self.turn = True, self.turn + 1
        played.outs, played.turn = self.outs, self.turn

    def give_back(self, played: Played) -> None:
        """Free again, if that was the last forward."""
        if played.turn == self.turn:
            self.busy = False

    def play_back(self, played: Played, given: Sequence[Tensor]) -> Found:
        """As `LayerCall.play_back`; gradients are lent."""
        found = self.play_input(played, given)
        found.parameters = self.play_weight(played).parameters
        return found

    def play_input(self, played: Played, given: Sequence[Tensor]) -> Found:
        """Gradients of inputs, lent. If it does not split, those of parameters lie there as well."""
        assert self.backward is not None and self.busy and played.turn == self.turn
        self._given.fill([numbers(t) for t in given])
        self.backward.replay()
        return Found(self.gradients, {})

    def play_weight(self, played: Played) -> Found:
        """Gradients of parameters, lent."""
        assert self.busy and played.turn == self.turn
        if self.splits:
            self.weight.replay()
        return Found([], self.found)

    def parameters(
        self, step: Step, names: Sequence[str], tied: frozenset[str], back: Found
    ) -> dict[tuple[str, int], Tensor | None]:  # fmt: skip
        """As `LayerCall.parameters`. They lie where they always do, so that is looked at once for a step."""
        if tied:
            return super().parameters(step, names, tied, back)
        laid = self._laid.get(step.target)
        if laid is None:
            named = super().parameters(step, names, tied, back)
            piece = bundle([*back.parameters.values()]) if len(back.parameters) == len(named) else None
            if piece is None:
                return named
            lying = Lying(tuple(names[i] for i in back.parameters), *piece, lent=True)
            laid = self._laid[step.target] = Laid(named, lying)
        return laid


def _apart(tensor: Tensor, shared: set[int]) -> Tensor:
    """`tensor`, copied if it lies in memory that others fill."""
    return tensor.clone() if tensor.untyped_storage().data_ptr() in shared else tensor
