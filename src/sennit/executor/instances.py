"""`Instances`: graphs that keep what their forward made, as many of a kind as wait for their backward at once.

    forward ──▶ one that is free, over the parameters of this layer?   ──▶ room for another over them? capture it
            ──▶ parameters that nobody waits for? they are replaced     ──▶ room for others? capture one over them
            ──▶ none: the backward computes the layer again
    backward, or a forward that is given up ──▶ free

All ways have the same bits, so how many there are may depend on what is free on the device when they are captured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator

import torch

from sennit.executor.kept_graph import KeptGraph, Weights
from sennit.executor.layer_graph import LayerGraph

SPARE = 0.25
"""Of what is free on the device when the first is captured: what must stay free, or no more are captured.

Where no limit was given, all may take what is left beside it and the layers that are to come, and as much as it in any
case: not all of a supernet may ever be used.
"""

PATIENCE = 2
"""Beside the parameters of n layers of a kind, those of another are kept once none were free `PATIENCE` x n^2 times: a
capture takes as long as some dozens of layers computed again, and pays only if as many are to come. The first ones
surely do; subnets that have many layers of one kind are rare. Early is better: what is captured late has been missed
all the while, and a training goes on for long."""

Make = Callable[[Weights, KeptGraph | None], KeptGraph | None]
"""Captures one over these parameters, with another of its kind if there is one; None if that cannot be done for this
kind."""


class Instances:
    """Of one worker.

    Args:
        room: bytes that are free on the device.
        limit: bytes for all; None: see `SPARE`.
        to_come: bytes of layers and their state that the device may have to hold.
        sharing: workers on the device.
        one_version: all micro-batches of a subnet read the same parameters.
        patience: see `PATIENCE`.
    """

    def __init__(
        self, room: Callable[[], int], limit: int | None = None, sharing: int = 1, one_version: bool = True,
        patience: int = PATIENCE, to_come: int = 0,
    ) -> None:  # fmt: skip
        self.room, self.limit, self.sharing, self.one_version = room, limit, sharing, one_version
        self.patience, self.to_come = patience, to_come
        self.missed: Counter[LayerGraph] = Counter()
        """How often none were free, since the last time that some were added."""
        self.spare = 0
        self.of: dict[LayerGraph, list[Weights]] = {}
        self.refused: set[LayerGraph] = set()
        """Kinds that cannot keep what they make."""
        self.sizes: dict[LayerGraph, int] = {}
        """Bytes of one of this kind without its parameters, once that is known."""
        self.nbytes = 0
        """Of all."""

    def __iter__(self) -> Iterator[KeptGraph]:
        return (graph for held in self.of.values() for weights in held for graph in weights.graphs)

    @property
    def busy(self) -> int:
        """How many are between forward and backward."""
        return sum(graph.busy for graph in self)

    def take(
        self, graph: LayerGraph, layer: tuple[int | None, str], device: torch.device, make: Make
    ) -> KeptGraph | None:
        """One that is free for the kind of `graph`, captured if there is room; None: compute it again in the backward.

        Args:
            layer: whose forward it is, by subnet and step.
        """
        if graph in self.refused:
            return None
        if self.limit is not None and self.nbytes > self.limit:
            self.trim()
        held = self.of.setdefault(graph, [])
        named = layer if self.one_version and layer[0] is not None else None
        found = self._there(graph, held, named, make) or self._replaced(held) or self._new(graph, held, device, make)
        if found is not None:
            found.layer = named
        return found

    def _there(self, graph: LayerGraph, held: list[Weights], named: Hashable, make: Make) -> KeptGraph | None:
        """One that finds its parameters."""
        first = None
        for weights in held if named is not None else ():
            if weights.of == named:
                free, first = weights.free(), first or weights
                if free is not None:
                    return free
        return None if first is None else self._captured(graph, first, 0, make)

    def _replaced(self, held: list[Weights]) -> KeptGraph | None:
        """One whose parameters may go."""
        for weights in held:
            if not weights.busy:
                weights.of = None
                return weights.free()
        return None

    def _new(self, graph: LayerGraph, held: list[Weights], device: torch.device, make: Make) -> KeptGraph | None:
        self.missed[graph] += 1
        if self.missed[graph] <= self.patience * len(held) ** 2:
            return None
        self.missed[graph] = 0
        weights = Weights(device)
        found = self._captured(graph, weights, graph.weights_nbytes, make)
        if found is not None:
            held.append(weights)
        return found

    def _captured(self, graph: LayerGraph, weights: Weights, more: int, make: Make) -> KeptGraph | None:
        """Another one, if there is room for it and `more` bytes."""
        if not self._fits(more + self.sizes.get(graph, graph.least_kept)):
            return None
        made = make(weights, next((other for others in self.of[graph] for other in others.graphs), None))
        if made is None:
            self.refused.add(graph)
            return None
        self.sizes[graph] = made.nbytes
        if not self._within(more + made.nbytes):
            return None  # it was larger than was to be seen before
        weights.graphs.append(made)
        self.nbytes += more + made.nbytes
        return made

    def _fits(self, size: int) -> bool:
        if self.limit is None:
            free = self.room() / self.sharing
            self.spare = int(free * SPARE)
            self.limit = max(self.spare, int(free) - self.to_come - self.spare)
        if not self._within(size):
            return False
        if self.spare and self.room() - size < self.spare:
            self.limit = self.nbytes  # others have taken it; asking again for each layer would take time
            return False
        return True

    def _within(self, size: int) -> bool:
        return self.limit is not None and self.nbytes + size <= self.limit

    def relieve(self) -> None:
        """The device is full: those that are free go, and from now on all may take half of what they took."""
        if not self.nbytes:
            return
        limit = self.nbytes // 2
        self.limit = 0
        self.trim()
        self.limit = limit

    def trim(self) -> None:
        """Give up those that are free until all are within the limit, or only busy ones are left."""
        for held in self.of.values():
            for weights in [*held]:
                for graph in [graph for graph in weights.graphs if not graph.busy]:
                    if self._within(0):
                        return
                    weights.graphs.remove(graph)
                    self.nbytes -= graph.nbytes
                if not weights.graphs:
                    held.remove(weights)
                    self.nbytes -= weights.memory.nbytes
