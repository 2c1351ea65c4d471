"""The space report against counting through every network."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sennit as sn
from sennit.recipe import Recipe, use_recipe
from sennit.space.report import SpaceReport, space_report


class Nested(sn.ModelSpace):
    """Choices inside candidates, a depth, a module that nobody calls."""

    def __init__(self) -> None:
        super().__init__()
        inner = sn.LayerChoice([nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 8)), nn.Identity()])
        deep = sn.Repeat(lambda i: nn.Linear(8, 8, bias=i > 0), (1, 3))
        self.a = sn.LayerChoice([nn.Sequential(nn.Linear(8, 8), inner), nn.Linear(8, 8, bias=False), deep])
        self.b = sn.LayerChoice({"norm": nn.BatchNorm1d(8), "id": nn.Identity()})
        self.unused = nn.Linear(100, 100)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.b(self.a(x)))


class SameLabel(sn.ModelSpace):
    def __init__(self) -> None:
        super().__init__()
        self.a = sn.LayerChoice([nn.Linear(8, 8), nn.Linear(8, 8, bias=False)], label="both")
        self.b = sn.LayerChoice([nn.Identity(), nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 8))], label="both")
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.b(self.a(x)))


class Inputs(sn.ModelSpace):
    """A layer that only feeds an input which was not chosen does not belong to the network."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = sn.LayerChoice([nn.Linear(8, 8), nn.Linear(8, 8, bias=False)]), nn.Linear(8, 8)
        self.pick = sn.InputChoice(2, 1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pick([self.a(x), self.b(x)]))


class Tied(sn.ModelSpace):
    """One module in two candidates: not a tree."""

    def __init__(self) -> None:
        super().__init__()
        one = nn.Linear(8, 8)
        self.a, self.b = (
            sn.LayerChoice([one, nn.Identity()]),
            sn.LayerChoice([one, nn.Linear(8, 8, bias=False)]),
        )
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.b(self.a(x)))


class ManyInputs(sn.ModelSpace):
    """As `Inputs`, with more networks than are counted through."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(sn.LayerChoice([nn.Linear(8, 8), nn.Linear(8, 8, bias=False)]) for _ in range(6))
        self.pick = sn.InputChoice(6, 2)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pick([layer(x) for layer in self.layers]))


class Static(sn.ModelSpace):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)


class Apart(sn.ModelSpace):
    """No layer is in every network."""

    def __init__(self) -> None:
        super().__init__()
        self.a = sn.LayerChoice([nn.Linear(8, 4), nn.Linear(8, 4, bias=False)])

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x)


class Points(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return torch.full((8,), float(i)), i % 4


def report_and_counts(space: type[sn.ModelSpace], **changes: Any) -> tuple[SpaceReport, list[int]]:
    recipe = Recipe(space="none", data="none", batch_size=4, steps=4, **changes)
    use_recipe(recipe)
    built = recipe.built
    built.__dict__["space_factory"] = space
    built.dataset = lambda split: Points()  # type: ignore[method-assign]
    tensors = {n: p.numel() for n, p in built.skeleton.named_parameters()}
    counts = []
    for arch in built.recordings.structure.enumerate():
        names = {name for step in built.program(arch).steps for name in step.params}
        counts.append(sum(tensors[name] for name in names))
    return space_report(built), counts


@pytest.mark.parametrize("space", [Nested, SameLabel, Inputs, Tied, Static])
def test_smallest_and_largest_network(space: type[sn.ModelSpace]) -> None:
    report, counts = report_and_counts(space)
    assert report.exact and report.networks == len(counts)
    assert report.parameters == (min(counts), max(counts))
    assert report.nbytes == (4 * min(counts), 4 * max(counts))
    assert report.all_parameters >= max(counts)


def test_bounds_where_counting_is_too_much() -> None:
    report, counts = report_and_counts(ManyInputs)
    assert not report.exact and len(counts) > 64
    assert report.parameters[0] <= min(counts) and report.parameters[1] >= max(counts)
    assert "at least / at most" in report.lines()[1]


@pytest.mark.parametrize(
    ("shared", "word"),
    [("strict", "waits for the one before"), ("delayed:4", "4 versions"), ("frozen", "initial values")],
)
def test_policy_of_always_shared_layers(shared: str, word: str) -> None:
    report, _ = report_and_counts(Nested, shared=shared)
    assert report.always == ("head",) and report.always_parameters == 36
    assert len(report.lines()) <= 5 and word in report.lines()[-1]
    if shared == "delayed:4":  # three more versions and four gradients of 144 bytes
        assert "1008 bytes more" in report.lines()[-1]


@pytest.mark.parametrize(
    ("sync", "says", "not_so"),
    [
        ("csp", "exact; at these layers each subnet waits for the one before", "bulk"),
        ("bulk:4", "sync = 'bulk:4': the subnets of a bulk (4 subnets) read one version of these layers", "exact"),
        ("bulk-per-worker", "(as many subnets as there are workers) read one version of these layers", "exact"),
        ("asp:stash", "sync = 'asp:stash': no subnet waits for another", "(more micro_batches"),
        ("asp:none", "in whatever version is there, so the result is not exact", "(more micro_batches"),
    ],
)
def test_the_policy_says_what_the_synchronisation_rule_does(sync: str, says: str, not_so: str) -> None:
    """Was the line of csp under every rule."""
    last = report_and_counts(Nested, sync=sync)[0].lines()[-1]
    assert says in last and not_so not in last
    assert ("waits for the one before" in last) == (not sync.startswith("asp"))
    frozen = report_and_counts(Nested, sync=sync, shared="frozen")[0].lines()[-1]
    assert frozen.endswith("these layers stay at their initial values")


@pytest.mark.parametrize(
    ("sync", "says"),
    [("csp", "only where they share a candidate"), ("bulk:4", "one version of layers"), ("asp:none", "every layer is")],
)
def test_a_space_without_always_shared_layers(sync: str, says: str) -> None:
    report, _ = report_and_counts(Apart, sync=sync)
    assert not report.always and says in report.lines()[-1]
