"""Archs: one canonical form for each network, counted, enumerated and covered."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_spaces import RandomSpace
from torch import Tensor, nn

import sennit as sn
from sennit.errors import ArchError, SpaceError
from sennit.space.choice import Choice, selecting
from sennit.space.structure import Structure

LIMIT = 300
"""Random spaces with more combinations of options are left out."""


def combinations(structure: Structure) -> list[dict[str, Any]]:
    """Every combination of options, sensible or not."""
    values = {label: [s.choice.encode(o) for o in s.choice.options()] for label, s in structure.sites.items()}
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def ran(space: nn.Module, arch: dict[str, Any]) -> tuple[set[str], set[str]]:
    """Labels of the choices and paths of the other modules that plain Python calls under an arch."""
    labels: set[str] = set()
    leaves: set[str] = set()
    hooks = []
    for path, module in space.named_modules():
        if isinstance(module, Choice):
            hooks.append(module.register_forward_hook(lambda m, *_: labels.add(m.label)))
        elif not list(module.children()):
            hooks.append(module.register_forward_hook(lambda *_, path=path: leaves.add(path)))
    with selecting(Structure(space).parse(arch)), torch.no_grad():
        space.forward(torch.zeros(1, 3))
    for hook in hooks:
        hook.remove()
    return labels, leaves


seeds = st.integers(0, 10_000)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seeds)
def test_canonical_size_and_enumeration_agree_with_brute_force(seed: int) -> None:
    structure = RandomSpace(seed).structure
    every = combinations(structure) if len(structure.sites) < 9 else []
    if not every or len(every) > LIMIT:
        return
    brute = {json.dumps(structure.canonical(arch)) for arch in every}
    listed = [json.dumps(arch) for arch in structure.enumerate()]
    assert len(listed) == len(brute) and set(listed) == brute
    assert structure.size() == len(brute)
    assert json.dumps(structure.default()) in brute
    for text in listed:  # JSON round trip
        assert json.dumps(structure.canonical(json.loads(text))) == text
    assert {json.dumps(arch) for arch in structure.covering()} <= brute


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seeds)
def test_active_labels_are_the_choices_that_python_calls(seed: int) -> None:
    space = RandomSpace(seed)
    structure = space.structure
    size = structure.size()
    if size is None or size > 100:
        return
    everything: set[str] = set()
    for arch in structure.enumerate():
        labels, leaves = ran(space, arch)
        assert labels == set(arch)
        everything |= leaves
    covered: set[str] = set()
    for arch in structure.covering():
        covered |= ran(space, arch)[1]
    assert covered == everything, "covering() must run every candidate that any arch runs"


class Nested(sn.ModelSpace):
    def __init__(self) -> None:
        super().__init__()
        inner = sn.LayerChoice({"relu": nn.ReLU(), "tanh": nn.Tanh()}, label="act")
        self.outer = sn.LayerChoice([nn.Sequential(nn.Linear(3, 3), inner), nn.Identity()])
        self.tail = sn.Repeat(lambda i: sn.LayerChoice([nn.Linear(3, 3), nn.Identity()]), (0, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.tail(self.outer(x))


def test_inactive_choices_do_not_make_two_networks() -> None:
    net = Nested()
    shared = {"outer": 1, "tail": 1, "tail.0": 0}
    assert net.canonical({**shared, "act": "relu", "tail.1": 1}) == shared
    assert net.canonical({**shared, "act": "tanh"}) == shared == net.canonical(shared)
    with pytest.raises(ArchError, match=r"arch\['act'\] = 'gelu'"):  # inactive, yet no option
        net.canonical({**shared, "act": "gelu"})
    assert net.structure.size() == (2 + 1) * (1 + 2 + 4)


def test_canonical_order_is_that_of_the_space() -> None:
    shuffled = {"tail.0": 1, "act": "tanh", "tail": 1, "outer": 0}
    assert list(Nested().canonical(shuffled)) == ["outer", "act", "tail", "tail.0"]


class Twice(sn.ModelSpace):
    """One choice stands in two places, inside different candidates."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = sn.LayerChoice([nn.Linear(3, 3), nn.Identity()])
        self.a = sn.LayerChoice([self.shared, nn.Identity()])
        self.b = sn.LayerChoice([nn.Identity(), self.shared])

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x))


def test_a_module_in_two_slots_is_active_if_either_is() -> None:
    class OnlyInside(Twice):
        def __init__(self) -> None:
            super().__init__()
            del self.shared

    assert set(OnlyInside().structure.sites) == {"a", "a.0", "b"}
    assert OnlyInside().canonical({"a": 1, "b": 0, "a.0": 1}) == {"a": 1, "b": 0}
    assert OnlyInside().canonical({"a": 1, "b": 1, "a.0": 1}) == {"a": 1, "a.0": 1, "b": 1}
    assert OnlyInside().structure.size() == 2 * 3 + 1


def test_shared_labels_agree_and_must_have_the_same_options() -> None:
    class Shared(sn.ModelSpace):
        def __init__(self, second: list[nn.Module]) -> None:
            super().__init__()
            self.a = sn.LayerChoice([nn.Linear(3, 3), nn.Identity()], label="s")
            self.b = sn.LayerChoice(second, label="s")

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x))

    net = Shared([nn.Linear(3, 3), nn.Identity()])
    assert net.structure.size() == 2 and net.canonical({"s": 1}) == {"s": 1}
    with pytest.raises(ArchError, match=r"two choices are labelled 's' but differ: 0, 1 against 0;"):
        Shared([nn.Identity()]).structure  # noqa: B018 - made when first looked at


def test_a_candidate_below_another_option_of_its_own_label_is_refused() -> None:
    class Buried(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            inner = sn.LayerChoice([nn.Linear(3, 3), nn.Identity()], label="s")
            self.outer = sn.LayerChoice([inner, nn.Identity()], label="s")

    with pytest.raises(SpaceError, match=r"option 1 of the choice at 'outer.0' can never run.*label 's'"):
        Buried().structure  # noqa: B018


def test_covering_reaches_each_place_of_a_shared_label() -> None:
    class Places(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            make = lambda: sn.LayerChoice([nn.Linear(3, 3), nn.Identity()], label="s")  # noqa: E731
            self.a = sn.LayerChoice([make(), nn.Identity()])
            self.b = sn.LayerChoice([nn.Identity(), make()])

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x))

    pairs = {(a["a"], a["b"], a.get("s")) for a in Places().structure.covering()}
    assert {(0, s) for s in (0, 1)} <= {(a, s) for a, _, s in pairs}
    assert {(1, s) for s in (0, 1)} <= {(b, s) for _, b, s in pairs}


def test_huge_spaces_are_counted_by_formula_or_not_at_all() -> None:
    class Huge(sn.ModelSpace):
        def __init__(self, shared: bool) -> None:
            super().__init__()
            blocks = [sn.LayerChoice([nn.Identity() for _ in range(96)]) for _ in range(48)]
            self.blocks = nn.Sequential(*blocks)
            self.again = blocks[0] if shared else None

        def forward(self, x: Tensor) -> Tensor:
            return self.blocks(x)

    assert Huge(False).structure.size() == Huge(True).structure.size() == 96**48

    class Tangled(sn.ModelSpace):
        def __init__(self, n: int) -> None:
            super().__init__()
            inner = sn.LayerChoice([nn.Identity() for _ in range(n)])
            self.a = sn.LayerChoice([inner, nn.Identity()])
            self.b = sn.LayerChoice([inner, *[nn.Identity() for _ in range(30)]])
            self.free = sn.LayerChoice([nn.Identity() for _ in range(9)])

    assert Tangled(50).structure.size() == (50 * 31 + 50 + 30) * 9
    assert Tangled(5000).structure.size() is None


def test_a_space_without_choices_is_one_network() -> None:
    class Plain(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)

    net = Plain()
    assert net.structure.size() == 1 and net.structure.covering() == [{}]
    x = torch.ones(2, 3)
    assert torch.equal(net(x), net(x, arch={})) and torch.equal(net(x), net.layer(x))


def test_a_choice_that_only_feeds_an_unused_input_may_be_left_out() -> None:
    class Pick(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.a = sn.LayerChoice([nn.Linear(3, 3), nn.Tanh()])
            self.b = sn.LayerChoice([nn.Linear(3, 3), nn.Tanh()])
            self.pick = sn.InputChoice(2)

        def forward(self, x: Tensor) -> Tensor:
            return self.pick([self.a(x), self.b(x)])

    net, x = Pick(), torch.ones(2, 3)
    assert net.program({"a": 1, "b": 0, "pick": [0]}, x).arch == {"a": 1, "pick": [0]}
    assert torch.equal(net(x, arch={"a": 1, "pick": [0]}), x.tanh())
    with pytest.raises(ArchError, match=r"arch lacks 'a', which is active"):
        net(x, arch={"b": 0, "pick": [0]})
    assert net.structure.given({"pick": [0], "a": 1}) == {"a": 1, "pick": [0]}
    with pytest.raises(ArchError, match=r"arch\['a'\] = 2 is not an option"):
        net.structure.given({"pick": [0], "a": 2})
