"""What is replayed, what stays eager, and that a graph is proven before it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sennit as sn
from sennit.executor.capture import Graph
from sennit.executor.eager import EagerExecutor
from sennit.executor.graphs import GraphExecutor
from sennit.program.cut import cut
from sennit.program.run import bind_inputs
from sennit.space.names import canonical_names, unique_tensors
from sennit.supernet.bits import same_bits
from sennit.supernet.context import StepContext, step_context
from tests.executor.host_graphs import HostGraphs


class Two(nn.Module):
    """Two outputs, the second one seldom used."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.a(F.dropout(x, 0.5, self.training)), self.b(x)


class Counting(nn.Module):
    """Remembers how often it was called."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls = self.calls + 1
        return x * 2.0


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.norm(x))


class Net(sn.ModelSpace):
    def __init__(self, middle: nn.Module, both: bool = False) -> None:
        super().__init__()
        self.middle, self.both, self.last = middle, both, nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        found = self.middle(x)
        x = found[0] + found[1] if self.both else found[0] if isinstance(found, tuple) else found
        return self.last(x)


def make(middle: nn.Module, both: bool = False) -> Net:
    """A net with numbers in it."""
    torch.manual_seed(0)
    net = Net(middle, both)
    for tensor in unique_tensors(net).values():
        if tensor.dtype.is_floating_point:
            tensor.data.normal_()
    return net


class Both:
    """A net that both executors run whole, each on its own copy of the tensors."""

    def __init__(self, net: Net, capturing: HostGraphs | None = None) -> None:
        self.net = net
        tensors = unique_tensors(net)
        self.held = [
            {n: t.detach().clone().requires_grad_(isinstance(t, nn.Parameter)) for n, t in tensors.items()}
            for _ in range(2)
        ]
        eager = EagerExecutor(net, canonical_names(net), frozenset(), torch.device("cpu"))
        self.graphs = GraphExecutor(eager, capturing or HostGraphs(torch.device("cpu")), after=0)

    def same(self, rows: int, key: int, one_output: bool = False) -> bool:
        """Whether a forward and a backward give the same outputs, gradients and buffers.

        Args:
            one_output: run the first step alone, and give a gradient to its first output only.
        """
        x = torch.randn(rows, 6, generator=torch.Generator().manual_seed(key))
        program = self.net.program({}, x)
        n = 1 if one_output else len(program.steps) - 1
        first, second = cut(program, [0] * n + [1] * (len(program.steps) - n))
        context = StepContext.of(0, key, 0, "fp32", torch.device("cpu"))
        found: list[Any] = []
        for executor, held in zip((self.graphs.eager, self.graphs), self.held, strict=True):
            with step_context(context):
                inputs = bind_inputs(program, (x,), {})
                out, ctx = executor.forward(
                    program, first, held.__getitem__, {}, inputs, context, None, lambda step: None
                )
            found.append([out])
            grads = {v: [torch.cos(root.detach())] for v, root in ctx.roots.items()}
            if one_output:
                assert len(grads) == 2
                grads[max(grads)] = []
            back = executor.backward(ctx, grads)  # type: ignore[arg-type]
            found[-1] += [sorted(n for n, _ in back.parameters), [back.parameters[k] for k in sorted(back.parameters)]]
            found[-1].append([held[n] for n in sorted(held)])
        assert second.has_loss
        return found[0][1] == found[1][1] and same_bits(found[0], found[1])


@pytest.mark.parametrize(
    ("middle", "both"), [(Two(), False), (Two(), True), (Norm(), False), (nn.Linear(6, 6, bias=False), False)]
)
def test_replayed_layers_have_the_bits_of_eager_ones(middle: nn.Module, both: bool) -> None:
    pair = Both(make(middle, both))
    assert all(pair.same(rows, key) for key, rows in enumerate((5, 5, 7, 5, 7)))
    assert pair.graphs.counts["replayed steps"] == 5
    assert pair.graphs.counts["graphs"] == 2, "one for each shape"


def test_an_output_without_gradient() -> None:
    pair = Both(make(Two(), both=True))
    assert all(pair.same(5, key, one_output=True) for key in range(3))
    assert pair.graphs.counts["replayed steps"] == 3


def test_two_layers_of_a_kind_share_a_graph_and_not_their_weights() -> None:
    pair = Both(make(nn.Sequential(nn.Linear(6, 6), nn.Tanh())))
    other = Both(make(nn.Sequential(nn.Linear(6, 6), nn.Tanh())))
    other.graphs.graphs = pair.graphs.graphs
    for tensor in other.held[0]:
        with torch.no_grad():
            for held in other.held:
                held[tensor] *= 0.5
    assert pair.same(5, 0) and other.same(5, 1)
    assert other.graphs.counts["graphs"] == 0 and other.graphs.counts["replayed steps"] == 1


def test_a_layer_that_keeps_something_stays_eager() -> None:
    pair = Both(make(Counting()))
    assert pair.same(5, 0) and pair.same(5, 1)
    assert pair.graphs.counts["replayed steps"] == 0
    assert list(pair.graphs.refused) == ["its forward changes attributes of its modules"]


def test_a_kind_is_captured_once_it_has_been_seen_often_enough() -> None:
    pair = Both(make(nn.Linear(6, 6)))
    pair.graphs.after = 2
    assert [pair.same(5, key) and pair.graphs.counts["replayed steps"] for key in range(4)] == [0, 0, 1, 2]


class Broken(HostGraphs):
    """Its replays of one kind (forward or backward) change a bit of what the capture gave."""

    def __init__(self, which: int) -> None:
        super().__init__(torch.device("cpu"))
        self.which = which
        self.spoil: Callable[[], None] = lambda: None

    def capture(self, call: Callable[[], None]) -> Graph:
        graph = super().capture(call)
        if self.captured % 2 != self.which % 2:
            return graph
        owner: Any = call.__self__  # type: ignore[attr-defined]

        class Wrong:
            def replay(self) -> None:
                graph.replay()
                for tensor in owner.outs if which == 1 else owner.flats.values():
                    tensor.view(torch.uint8).reshape(-1)[:1] ^= 1

        which = self.which
        return Wrong()


@pytest.mark.parametrize("which", [1, 2])
def test_a_graph_with_other_bits_is_not_used(which: int) -> None:
    pair = Both(make(nn.Linear(6, 6)), Broken(which))
    assert pair.same(5, 0) and pair.same(5, 1)
    assert pair.graphs.counts["replayed steps"] == 0
    assert list(pair.graphs.refused) == ["a replay gives other bits"]
