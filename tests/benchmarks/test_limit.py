"""The bound for contiguous stages against the best that any order reaches, found by trying all of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from benchmarks.speed.limit import limit, through_stages

from sennit.schedule.csp import CspOrder
from sennit.simulate.engine import Simulation
from sennit.simulate.load import Cost, Piece
from sennit.supernet.sync import CspSync, Shared

Layers = Sequence[tuple[int, int]]
"""Of each, seconds of forward and backward."""


def pieces(layers: Layers, worker: Sequence[int], sources: Sequence[tuple[int, ...]] | None = None) -> list[Piece]:
    """A layer each, with a group of its own."""
    return [
        Piece(w, (f"layer {r}",), Cost(f, b, b / 2, b / 2), sources=None if sources is None else sources[r])
        for r, ((f, b), w) in enumerate(zip(layers, worker, strict=True))
    ]


def placed(layers: int, workers: int, stages: int) -> Iterator[tuple[int, ...]]:
    """Every partition into so many contiguous stages, each on any worker: of each layer, its worker."""
    for cuts in itertools.combinations(range(1, layers), stages - 1):
        ends = (*cuts, layers)
        for on in itertools.product(range(workers), repeat=stages):
            yield tuple(on[sum(r >= end for end in ends)] for r in range(layers))


def best(layers: Layers, worker: Sequence[int], m: int) -> int:
    """The shortest time in which one subnet's micro-batches go forth and back, over all orders of their tasks. Tasks in
    some order, each as early as its worker and the task before it allow: one of these is the shortest."""
    tasks = [(w, f) for (f, _), w in zip(layers, worker, strict=True)]
    tasks += [(w, b) for (_, b), w in reversed([*zip(layers, worker, strict=True)])]
    found = sum(seconds for _, seconds in tasks) * m
    states = {((0,) * m, (0,) * m, (0,) * (max(worker) + 1))}
    while states:
        after: set[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = set()
        for done, ready, free in states:
            if all(n == len(tasks) for n in done):
                found = min(found, max(ready))
                continue
            for j in range(m):
                if done[j] == len(tasks):
                    continue
                w, seconds = tasks[done[j]]
                end = max(ready[j], free[w]) + seconds
                if end < found:
                    after.add((put(done, j, done[j] + 1), put(ready, j, end), put(free, w, end)))
        states = after
    return found


def put(values: tuple[int, ...], at: int, value: int) -> tuple[int, ...]:
    return *values[:at], value, *values[at + 1 :]


def drawn(seed: int, layers: int) -> Layers:
    dice = random.Random(seed)
    return [(dice.randint(0, 4), dice.randint(1, 8)) for _ in range(layers)]


@pytest.mark.parametrize(("layers", "workers", "m"), [(2, 2, 3), (3, 2, 2), (3, 3, 2), (4, 2, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_no_order_of_any_partition_is_below_the_bound(layers: int, workers: int, m: int, seed: int) -> None:
    drawn_layers = drawn(seed, layers)
    for stages in range(1, layers + 1):
        bound = through_stages(pieces(drawn_layers, [0] * layers), {"layer 0"}, m, stages)
        shortest = min(best(drawn_layers, worker, m) for worker in placed(layers, workers, stages))
        assert bound <= shortest + 1e-9


def test_the_bound_is_reached_and_is_above_the_others() -> None:
    """Backwards of equal stages that follow one another without a gap; the work alone could be shared sooner."""
    layers, m = [(0, 3), (0, 3)], 2
    bound = through_stages(pieces(layers, [0, 1]), {"layer 0"}, m, 2)
    assert bound == best(layers, [0, 1], m) == 9 > m * 6 / 2


@dataclass(frozen=True)
class Alike:
    """Subnets of the same layers."""

    held: Sequence[Piece]
    workers: int
    micro_batches: int
    count: int

    def subnets(self) -> Iterator[Sequence[Piece]]:
        return iter([self.held] * self.count)


@pytest.mark.parametrize("in_flight", [1, 3])
@pytest.mark.parametrize("m", [1, 2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_simulated_subnets_take_turns_no_faster(seed: int, m: int, in_flight: int) -> None:
    """Five layers on two workers in three stages; the fourth layer reads the second, too."""
    layers, worker, n = drawn(seed, 5), [0, 0, 1, 1, 0], 6
    for sources in (None, [(), (0,), (1,), (1, 2), (3,)]):
        held = pieces(layers, worker, sources)
        load = Alike(held, 2, m, n)
        orders = [CspOrder(), CspOrder()]
        simulated = Simulation(load, orders, CspSync((), Shared("strict")), in_flight).run().makespan
        assert simulated >= n * through_stages(held, {"layer 0"}, m, 3) - 1e-9


def test_a_chain_begins_at_a_shared_layer_and_ends_at_the_last() -> None:
    held = pieces([(1, 2), (5, 9), (1, 1)], [0, 1, 1], [(), (), (0, 1)])
    assert through_stages(held, {"layer 0"}, 1, 2) == 5
    assert through_stages(held, {"layer 0", "layer 1"}, 1, 2) == 16
    assert through_stages(held, {"layer 1"}, 3, 2) == 16 + 2 * 10 / 2
    assert through_stages(held, {"layer 2"}, 3, 2) == 2 + 2 * 1 / 2
    assert through_stages(held, set(), 3, 2) == through_stages([], {"layer 0"}, 3, 2) == 0.0
    cut_off = pieces([(1, 2), (5, 9)], [0, 1], [(), ()])
    assert through_stages(cut_off, {"layer 0"}, 3, 2) == 0.0


def test_stages_bind_where_they_are_the_most() -> None:
    assert limit(40.0, 2, 0.0, 0.0, (1.0, 1.0), 21.0, 25.0).binds == "stages"
    assert limit(40.0, 2, 0.0, 0.0, (1.0, 1.0), 21.0, 25.0).ms == 25.0
    assert limit(40.0, 1, 0.0, 0.0, (1.0, 1.0), 21.0, 40.0).binds == "kernels"  # all that there is to do
