"""A network that some micro-batches are in at once, run by graphs that keep what they made and by eager layers."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor, nn

from sennit.executor.eager import EagerExecutor
from sennit.executor.graphs import GraphExecutor
from sennit.executor.instances import Instances
from sennit.space.names import canonical_names, unique_tensors
from sennit.supernet.bits import same_bits
from tests.executor.flights import Flight, Net, make
from tests.executor.host_graphs import HostGraphs

CPU = torch.device("cpu")
PLENTY = 1 << 40


class Together:
    """Everything that such a network needs.

    Args:
        graphs: how to capture; None for the stand-in.
    """

    def __init__(
        self, seed: int, layers: int = 6, limit: int | None = PLENTY, graphs: Any = None, device: torch.device = CPU,
        precision: str = "fp32", one_version: bool = True, patience: int = 0,
        splits: bool = False,
    ) -> None:  # fmt: skip
        self.draw, self.device, self.precision = random.Random(seed), device, precision
        self.net: Net = make(self.draw, layers)
        self.tensors = {name: (t, isinstance(t, nn.Parameter)) for name, t in unique_tensors(self.net).items()}
        self.program = self.net.program({}, torch.zeros(4, 6))
        self.capturing = graphs or HostGraphs(device)
        self.eager = EagerExecutor(self.net, canonical_names(self.net), frozenset(), device)
        self.instances = Instances(self.capturing.room, limit, one_version=one_version, patience=patience)
        self.one_version, self.rounds = one_version, 0
        self.graphs = GraphExecutor(self.eager, self.capturing, after=0, instances=self.instances, splits=splits)
        self.splits = splits

    def flights(self, subnets: int, micro_batches: int = 2, rows: int = 0) -> list[tuple[Flight, Flight]]:
        """Each twice, with the same numbers, for the two executors. Micro-batches of a subnet have the same parameters,
        if there is one version of them.

        Args:
            rows: of each; 0: some have more.
        """
        found: list[tuple[Flight, Flight]] = []
        for n in range(subnets * micro_batches):
            size = rows or self.draw.choice([4, 4, 7])
            x = torch.randn(size, 6, generator=torch.Generator().manual_seed(n)).to(self.device)
            places = sorted(self.draw.randrange(3) for _ in self.program.steps)
            y, j = divmod(n, micro_batches)
            scale, key = 1.0 + 0.1 * (y if self.one_version else n) + self.rounds, (y + 100 * self.rounds, j)
            late = self.draw.randrange(3) if self.splits else None
            one, two = (Flight(self.program, places, self.copies(scale), x, key, self.precision) for _ in range(2))
            one.late = late
            found.append((one, two))
        self.rounds += 1
        return found

    def copies(self, scale: float) -> dict[str, Tensor]:
        """The network's tensors, other numbers in each."""
        return {
            name: (t.detach() * scale if t.dtype.is_floating_point else t.detach().clone())
            .to(self.device)
            .requires_grad_(trains)
            for name, (t, trains) in self.tensors.items()
        }

    def all_forwards_first(self, pairs: list[tuple[Flight, Flight]]) -> None:
        """As many as there are wait at once."""
        for pair in pairs:
            for flight, executor in zip(pair, (self.graphs, self.eager), strict=True):
                for _ in flight.runs:
                    flight.advance(executor)
        for pair in pairs:
            for flight, executor in zip(pair, (self.graphs, self.eager), strict=True):
                while not flight.done:
                    flight.advance(executor)
        self.compare(pairs)

    def any_order(self, pairs: list[tuple[Flight, Flight]], full: bool) -> None:
        """Runs of steps of several micro-batches between each other; some forwards fail in the middle, and some
        backwards have to begin with the forward again.

        Args:
            full: then the device is full as well.
        """
        for _, two in pairs:
            while not two.done:
                two.advance(self.eager)
        waiting = [one for one, _ in pairs]
        while waiting:
            flight = self.draw.choice(waiting)
            chance = self.draw.random()
            if chance < 0.1 and flight.at < len(flight.runs):
                self.given_up(flight, self.draw.randrange(1, 4))
                if full:
                    self.graphs.relieve()
            elif chance < 0.2:
                flight.again(self.graphs)
            else:
                flight.advance(self.graphs)
            waiting = [one for one in waiting if not one.done]
        self.compare(pairs)

    def given_up(self, flight: Flight, step: int) -> None:
        """A forward that fails at this step, if it has so many."""
        busy, left = self.instances.busy, [step]

        def fails(step: Any) -> None:
            left[0] -= 1
            if not left[0]:
                raise torch.OutOfMemoryError("no room, says the test")

        try:
            flight.advance(self.graphs, fails)
        except torch.OutOfMemoryError:
            assert self.instances.busy == busy, "a forward that is given up keeps nothing"

    def compare(self, pairs: list[tuple[Flight, Flight]]) -> None:
        """Everything that came out, looked at once all is over."""
        for one, two in pairs:
            assert one.done and two.done
            for mine, theirs in zip(one.given, two.given, strict=True):
                assert same_bits(mine, theirs) and _words(mine) == _words(theirs), one.key
            assert same_bits([one.held[n] for n in sorted(one.held)], [two.held[n] for n in sorted(two.held)])
        assert self.instances.busy == 0, "all are given back"
        self.instances.trim()
        weights = [weights for held in self.instances.of.values() for weights in held]
        held = sum(w.memory.nbytes for w in weights) + sum(one.nbytes for one in self.instances)
        assert self.instances.nbytes == held
        assert self.instances.nbytes <= (PLENTY if self.instances.limit is None else self.instances.limit)


def _words(item: Any) -> Any:
    """Of a nest, what is no tensor."""
    if isinstance(item, list):
        return [_words(part) for part in item]
    return None if isinstance(item, Tensor) else item
