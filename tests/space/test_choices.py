"""The choices: what they take, what they refuse and how they say it."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sennit as sn
from sennit.errors import ArchError, SpaceError


class Net(sn.ModelSpace):
    def __init__(self) -> None:
        super().__init__()
        self.by_index = sn.LayerChoice([nn.Linear(3, 3), [nn.Linear(3, 3), nn.ReLU()]])
        self.by_key = sn.LayerChoice({"mlp": nn.Linear(3, 3), "skip": nn.Identity()}, label="kind")
        self.depth = sn.Repeat(lambda i: nn.Linear(3, 3, bias=i > 0), (1, 3))
        self.join = sn.InputChoice(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        a = self.by_index(x)
        return self.join([a, self.by_key(a), self.depth(x)])


ARCH = {"by_index": 1, "kind": "skip", "depth": 2, "join": [0, 2]}


def test_labels_are_paths_unless_given() -> None:
    assert set(Net().structure.sites) == set(ARCH)


def test_labels_follow_the_outermost_space() -> None:
    class Outer(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Net()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)

    outer = Outer()
    assert set(outer.structure.sites) == {"inner.by_index", "kind", "inner.depth", "inner.join"}
    arch = {"inner.by_index": 0, "kind": "mlp", "inner.depth": 1, "inner.join": [0, 1]}
    assert outer(torch.ones(2, 3), arch=arch).shape == (2, 3)


@pytest.mark.parametrize(
    ("label", "value", "legal"),
    [
        ("by_index", 2, "legal: 0, 1"),
        ("by_index", -1, "legal: 0, 1"),
        ("by_index", True, "legal: 0, 1"),
        ("by_index", 1.0, "legal: 0, 1"),
        ("by_index", np.int64(1), "legal: 0, 1"),
        ("by_index", "1", "legal: 0, 1"),
        ("by_index", None, "legal: 0, 1"),
        ("by_index", [1], "legal: 0, 1"),
        ("kind", "conv", "legal: 'mlp', 'skip'"),
        ("kind", 0, "legal: 'mlp', 'skip'"),
        ("depth", 0, "legal: 1, 2, 3"),
        ("depth", 4, "legal: 1, 2, 3"),
        ("depth", True, "legal: 1, 2, 3"),
        ("depth", 2.0, "legal: 1, 2, 3"),
        ("join", [0], r"legal: \[0, 1\], \[0, 2\], \[1, 2\]"),
        ("join", [0, 0], r"legal: \[0, 1\]"),
        ("join", [0, 3], r"legal: \[0, 1\]"),
        ("join", [0, True], r"legal: \[0, 1\]"),
        ("join", "01", r"legal: \[0, 1\]"),
        ("join", 0, r"legal: \[0, 1\]"),
    ],
)
def test_an_illegal_value_names_key_value_and_what_is_legal(label: str, value: Any, legal: str) -> None:
    with pytest.raises(ArchError, match=rf"arch\['{label}'\] = .* is not an option of this choice; {legal}"):
        Net().canonical({**ARCH, label: value})


def test_legal_values_are_normalised() -> None:
    assert Net().canonical({**ARCH, "join": (2, 0)})["join"] == [0, 2]
    single = sn.InputChoice(3, label="one")
    assert single.parse(1) == single.parse([1]) == (1,) and single.encode((1,)) == [1]


def test_unknown_and_missing_labels() -> None:
    with pytest.raises(ArchError, match=r"no choice 'blocks'; labels of this space: 'by_index', 'kind'"):
        Net().canonical({**ARCH, "blocks": 0})
    with pytest.raises(ArchError, match=r"arch lacks 'kind', which is active; legal: 'mlp', 'skip'"):
        Net().canonical({k: v for k, v in ARCH.items() if k != "kind"})
    with pytest.raises(ArchError, match=r"an arch is a flat dict of label to value, got \[1\]"):
        Net().canonical([1])  # type: ignore[arg-type]


def test_many_labels_and_values_are_shortened() -> None:
    class Wide(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(sn.LayerChoice([nn.Identity() for _ in range(40)]) for _ in range(20))

    with pytest.raises(ArchError, match=r"'blocks.11', ... \(8 more\)$"):
        Wide().canonical({"nothing": 0})
    with pytest.raises(ArchError, match=r"23, ... \(16 more\)$"):
        Wide().canonical({"blocks.0": 40})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: sn.LayerChoice([]), "needs at least one candidate"),
        (lambda: sn.LayerChoice({}), "needs at least one candidate"),
        (lambda: sn.LayerChoice([nn.ReLU]), "candidate 0 is .*not a module"),
        (lambda: sn.LayerChoice({"a": 3}), "candidate 'a' is 3, not a module"),
        (lambda: sn.LayerChoice({"a.b": nn.ReLU()}), "key 'a.b' cannot name a module"),
        (lambda: sn.LayerChoice({"": nn.ReLU()}), "key '' cannot name a module"),
        (lambda: sn.LayerChoice({"forward": nn.ReLU()}), "key 'forward' cannot name a module"),
        (lambda: sn.LayerChoice({3: nn.ReLU()}), "key 3 cannot name a module: a string"),
        (lambda: sn.Repeat(nn.ReLU(), 0), "got 0"),
        (lambda: sn.Repeat(nn.ReLU(), (3, 2)), r"got \(3, 2\)"),
        (lambda: sn.Repeat(nn.ReLU(), (-1, 2)), r"got \(-1, 2\)"),
        (lambda: sn.Repeat(lambda i: i, 2), "must return a module, got 0 for index 0"),  # type: ignore[arg-type]
        (lambda: sn.InputChoice(2, 3), "n_candidates=2 and n_chosen=3|n_chosen=3 and n_candidates=2|got"),
        (lambda: sn.InputChoice(2, 0), "1 <= n_chosen"),
        (lambda: sn.InputChoice(2, 1, "max"), "reduction must be one of sum, mean, concat, none, got 'max'"),
        (lambda: sn.LayerChoice([nn.ReLU()], label=""), "must not be empty"),
    ],
)
def test_a_choice_that_cannot_be_is_refused_where_it_is_made(make: Any, said: str) -> None:
    with pytest.raises((SpaceError, ArchError), match=said):
        make()


def test_a_choice_called_alone_says_how() -> None:
    net = Net()
    with pytest.raises(ArchError, match=r"'by_index' was called without an arch; call the model space itself"):
        net.by_index(torch.ones(1, 3))
    with pytest.raises(ArchError, match=r"call it as model\(x, arch="):
        net(torch.ones(1, 3))


def test_input_choice_called_with_another_number() -> None:
    class Two(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.pick = sn.InputChoice(3)

        def forward(self, x: Tensor) -> Tensor:
            return self.pick([x, x])

    with pytest.raises(SpaceError, match=r"'pick' has n_candidates=3 but was called with 2 tensors"):
        Two()(torch.ones(1, 3), arch={"pick": [0]})


def test_repeat_copies_a_module_and_calls_a_factory() -> None:
    copied = sn.Repeat(nn.Linear(2, 2), (0, 3))
    assert len({id(m) for m in copied.children()}) == 3
    widths = [m.out_features for m in sn.Repeat(lambda i: nn.Linear(2, 2 + i), 3).children()]
    assert widths == [2, 3, 4]
    assert sn.Repeat(nn.ReLU(), 2).options() == (2,)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_a_used_space_can_be_copied_and_pickled(clone: Any) -> None:
    net = Net()
    x = torch.ones(2, 3)
    wanted = net(x, arch=ARCH)
    again = clone(net)
    assert torch.equal(again(x, arch=ARCH), wanted)
    with torch.no_grad():
        again.get_parameter("by_index.1.0.bias").add_(1.0)
    assert not torch.equal(again(x, arch=ARCH), wanted) and torch.equal(net(x, arch=ARCH), wanted)
