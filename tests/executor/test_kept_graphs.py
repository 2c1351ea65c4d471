"""Graphs that keep what their forward made give the bits of eager layers: any order, any limit, after failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import sennit as sn
from sennit.executor.capture import Chain
from sennit.executor.instances import Instances
from sennit.executor.kept_graph import KeptGraph
from sennit.executor.proof import proven
from sennit.supernet.bits import same_bits
from tests.executor.host_graphs import HostGraphs
from tests.executor.test_graph_executor import Both, Counting, Norm, Two
from tests.executor.test_graph_executor import make as small
from tests.executor.together import CPU, PLENTY, Together


def keeping(pair: Both, limit: int | None = PLENTY) -> Instances:
    """Let the graphs of a pair keep."""
    device: Any = pair.graphs.device
    pair.graphs.instances = found = Instances(device.room, limit)
    return found


def any_kind() -> Any:
    """Of graphs that take no memory."""

    class Kind:
        weights_nbytes = least_kept = 0

    return Kind()


@pytest.mark.parametrize("splits", [False, True], ids=["whole", "split"])
@pytest.mark.parametrize("seed", range(16))
def test_random_networks_in_random_orders(seed: int, splits: bool) -> None:
    limit = [PLENTY, 4_000, 20_000, 1][seed % 4]
    run = Together(seed, limit=limit, one_version=seed % 5 > 0, splits=splits)
    run.any_order(pairs := run.flights(3), full=seed % 3 == 0)
    assert run.graphs.counts["replayed steps"] > 0
    assert not [reason for reason in run.graphs.refused if "bits" in reason]
    if limit == PLENTY and seed % 3:
        assert run.graphs.counts["kept steps"] > 0
        assert any(one.left for one, _ in pairs) == splits
    if limit == 1:
        assert run.graphs.counts["kept steps"] == 0 and run.capturing.chained == 0


@pytest.mark.parametrize(
    ("middle", "both"), [(Two(), False), (Two(), True), (Norm(), False), (nn.Linear(6, 6, bias=False), False)]
)
def test_layers_have_the_bits_of_eager_ones(middle: nn.Module, both: bool) -> None:
    pair = Both(small(middle, both))
    instances = keeping(pair)
    assert all(pair.same(rows, key) for key, rows in enumerate((5, 5, 7, 5, 7)))
    assert pair.graphs.counts["kept steps"] == pair.graphs.counts["replayed steps"] == 5
    assert pair.graphs.counts["graphs"] == 4, "for each shape one that computes again, and one that keeps"
    assert instances.busy == 0


def test_an_output_without_gradient_gives_the_instance_back() -> None:
    pair = Both(small(Two(), both=True))
    instances = keeping(pair)
    assert all(pair.same(5, key, one_output=True) for key in range(3))
    assert pair.graphs.counts["kept steps"] == 3 and instances.busy == 0


def test_as_many_are_captured_as_wait_at_once_and_they_are_used_again() -> None:
    run = Together(1)
    run.all_forwards_first(run.flights(2, rows=4))
    made = run.capturing.chained
    assert made == len([*run.instances]) > 0
    for subnets in (1, 2, 2):
        run.all_forwards_first(run.flights(subnets, rows=4))
    assert run.capturing.chained == made == len([*run.instances])


def test_micro_batches_of_a_subnet_share_a_copy_of_the_parameters() -> None:
    run = Together(6)
    run.all_forwards_first(run.flights(1, rows=4))
    weights = [weights for held in run.instances.of.values() for weights in held]
    assert {len(one.graphs) for one in weights} == {2} and len({one.of for one in weights}) == len(weights)
    (one, _), (two, eager) = run.flights(1, rows=4)
    layers = {name for step in run.program.steps if step.kind == "module" for name in step.params}
    for name in layers:
        two.held[name].data.zero_()  # nobody looks at these again
    for flight, executor in ((one, run.graphs), (two, run.graphs), (eager, run.eager)):
        for _ in flight.runs:
            flight.advance(executor)
    assert layers and same_bits(two.given, eager.given)


def test_more_of_a_kind_are_captured_the_more_often_none_was_free() -> None:
    run = Together(1, patience=1)
    found: list[int] = []
    for _ in range(12):
        run.all_forwards_first(run.flights(2, rows=4))
        found.append(run.capturing.chained)
    patient = Together(1)
    patient.all_forwards_first(patient.flights(2, rows=4))
    assert found == sorted(found) and 0 < found[0] < found[-1] <= patient.capturing.chained


def test_each_further_one_is_worth_more_misses() -> None:
    """Beside n that are busy, another one is captured once none was free 2 n^2 times."""

    instances, graph = Instances(lambda: 1 << 40, patience=2), any_kind()
    given = [
        instances.take(graph, (y, "layer"), CPU, lambda *_: SimpleNamespace(nbytes=0, busy=True)) is not None  # type: ignore[arg-type, return-value]
        for y in range(4 + 2 + 8 + 18)
    ]
    assert [y for y, there in enumerate(given) if there] == [0, 1 + 2, 4 + 8, 13 + 18]


def test_the_first_of_a_kind_is_warmed_up_and_compared_and_others_follow_it(monkeypatch: pytest.MonkeyPatch) -> None:
    device, compared = Warming(CPU), list[object]()

    def watched(graph: Any, *rest: Any) -> bool:
        compared.append(graph)
        return proven(graph, *rest)

    monkeypatch.setattr("sennit.executor.graphs.proven", watched)
    run = Together(1, graphs=device)
    run.all_forwards_first(run.flights(2, rows=4))
    firsts = [held[0].graphs[0] for held in run.instances.of.values()]
    assert [graph for graph in compared if isinstance(graph, KeptGraph)] == firsts
    assert device.warmed == len(firsts) < device.chained == len([*run.instances])
    run.instances.limit = 0  # nothing is left that could be followed
    run.instances.trim()
    run.instances.limit = None
    run.all_forwards_first(run.flights(1, rows=4))
    assert device.warmed == 2 * len(firsts)


def test_the_limit_is_kept_and_the_rest_is_computed_again() -> None:
    whole = Together(2)
    whole.all_forwards_first(whole.flights(2))
    half = Together(2, limit=whole.instances.nbytes // 2)
    half.all_forwards_first(half.flights(2))
    assert 0 < half.graphs.counts["kept steps"] < half.graphs.counts["replayed steps"]
    assert whole.graphs.counts["kept steps"] == whole.graphs.counts["replayed steps"]


def test_without_a_limit_a_quarter_stays_free() -> None:
    device = HostGraphs(CPU)
    device.free = 1_000_000
    run = Together(3, limit=None, graphs=device)
    run.all_forwards_first(run.flights(1))
    assert run.instances.limit == 750_000
    held, device.free = run.instances.nbytes, 250_000  # others have taken it
    assert held
    run.all_forwards_first(run.flights(2))
    assert run.instances.nbytes == run.instances.limit == held


@pytest.mark.parametrize(
    ("to_come", "sharing", "limit"),
    [(0, 1, 75), (30, 1, 45), (50, 1, 25), (400, 1, 25), (0, 2, 38), (10, 2, 28), (400, 2, 12)],
)
def test_layers_that_are_to_come_have_their_room(to_come: int, sharing: int, limit: int) -> None:
    instances = Instances(lambda: 100, sharing=sharing, to_come=to_come)
    instances.take(any_kind(), (0, "a"), CPU, lambda weights, like: None)
    assert instances.limit == limit


def test_a_full_device_lets_go_what_is_free_and_keeps_what_is_used() -> None:
    run = Together(4)
    run.all_forwards_first(run.flights(1))
    (one, two), (other, same) = pairs = run.flights(1)
    for _ in one.runs:
        one.advance(run.graphs)
        two.advance(run.eager)
    before, busy = run.instances.nbytes, run.instances.busy
    run.graphs.relieve()
    assert run.instances.busy == busy > 0
    assert len([*run.instances]) == busy
    assert run.instances.limit == before // 2
    for flight, executor in ((one, run.graphs), (two, run.eager), (other, run.graphs), (same, run.eager)):
        while not flight.done:
            flight.advance(executor)
    run.compare(pairs)


def test_a_layer_that_keeps_something_of_its_own_stays_eager() -> None:
    pair = Both(small(Counting()))
    instances = keeping(pair)
    assert pair.same(5, 0) and pair.same(5, 1)
    assert pair.graphs.counts["replayed steps"] == 0 and instances.nbytes == 0


class Warming(HostGraphs):
    """Counts chains that were warmed up."""

    warmed = 0

    def chain(self, calls: Any, warm: bool = False) -> Chain:
        self.warmed += not warm
        return super().chain(calls, warm)


class BrokenChains(HostGraphs):
    """The replay of one half changes a bit of what the capture gave."""

    def __init__(self, which: int) -> None:
        super().__init__(CPU)
        self.which = which

    def chain(self, calls: Any, warm: bool = False) -> Chain:
        chain = super().chain(calls, warm)
        owner: Any = calls[0].__self__
        which, graphs = self.which, [*chain.graphs]
        replay = graphs[which].replay

        class Wrong:
            def replay(self) -> None:
                replay()
                for tensor in owner.outs if which == 0 else owner.found.values():
                    tensor.view(torch.uint8).reshape(-1)[:1] ^= 1

        graphs[which] = Wrong()
        return Chain(tuple(graphs), chain.nbytes)


@pytest.mark.parametrize("which", [0, 1])
def test_an_instance_with_other_bits_is_not_used_and_the_layer_is_computed_again(which: int) -> None:
    pair = Both(small(nn.Linear(6, 6)), BrokenChains(which))
    instances = keeping(pair)
    assert pair.same(5, 0) and pair.same(5, 1)
    counts: Callable[[str], int] = pair.graphs.counts.__getitem__
    assert counts("replayed steps") == 2 and counts("kept steps") == 0 and instances.nbytes == 0
    assert list(pair.graphs.refused) == ["a replay gives other bits"]
    device: Any = pair.graphs.device
    assert device.chained == 1, "it is tried once"


def test_what_leaves_a_run_is_no_memory_of_an_instance() -> None:
    """Of all that came out of flights, nothing lies where an instance writes."""
    run = Together(5, layers=8)
    pairs = run.flights(2)
    run.all_forwards_first(pairs)
    lent = {p for one in run.instances for p in one.lends}
    assert lent

    def tensors(item: Any) -> list[Tensor]:
        if isinstance(item, list):
            return [t for part in item for t in tensors(part)]
        return [item] if isinstance(item, Tensor) else []

    out = [t for one, _ in pairs for t in tensors(one.given)]
    assert out and not [t for t in out if t.untyped_storage().data_ptr() in lent]


class Beside(sn.ModelSpace):
    """A layer whose gradient is the one that it is given, beside one that is given another, with a reader in common."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.beside, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2)
        self.through = nn.Sequential(nn.Identity(), nn.Identity())

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        beside = self.beside(x)
        return self.last(self.through(x) * 2.0 + beside)


def test_a_gradient_that_is_what_the_layer_was_given_stays_when_another_is_given() -> None:
    pair = Both(Beside())  # type: ignore[arg-type]
    for held in pair.held:
        for name, tensor in held.items():
            tensor.data.copy_(torch.randn(tensor.shape, generator=torch.Generator().manual_seed(len(name))))
    keeping(pair)
    assert pair.same(5, 0) and pair.same(5, 1)
    assert pair.graphs.counts["kept steps"] >= 6


class Launched(TorchDispatchMode):
    """Counts operations by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("limit", "again"), [(PLENTY, 0), (0, 2)])
def test_a_backward_computes_nothing_of_the_forward_again(limit: int, again: int) -> None:
    pair = Both(small(nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh())))
    keeping(pair, limit)
    assert pair.same(5, 0)
    seen: list[Counter[str]] = []
    backward = pair.graphs.backward

    def watched(*arguments: Any) -> Any:
        with Launched() as launched:
            found = backward(*arguments)
        seen.append(launched.counts)
        return found

    pair.graphs.backward = watched  # type: ignore[method-assign]
    assert pair.same(5, 1)
    assert [counts["tanh"] for counts in seen] == [again] and seen[0]["tanh_backward"] == 2
