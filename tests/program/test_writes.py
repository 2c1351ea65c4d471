"""What a unit's forward writes is seen by memory, however it is written; what is settled stays so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sennit as sn
from sennit.errors import SpaceError
from sennit.program.recordings import Recordings, spec_of
from sennit.program.step import Program


class Unit(nn.Module):
    """`body` is what each test puts in; it is given the unit and what came in."""

    def __init__(self, body: Callable[[Any, Tensor], Any], shared: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3) if shared is None else shared)
        self.register_buffer("var", torch.ones(3), persistent=False)
        self.weight = nn.Parameter(torch.ones(3))
        self.inner = nn.Module()
        self.inner.register_buffer("seen", torch.zeros(3))
        self.register_buffer("nothing", None)
        self.__dict__["body"] = body

    def forward(self, x: Tensor, *others: Tensor) -> Any:
        found = self.__dict__["body"](self, x, *others)
        return found if isinstance(found, Tensor) and found.shape == x.shape else x * self.weight


class Net(sn.ModelSpace):
    """Two choices of a width, and units that are given both widths: `body` sees (unit, x, a, b)."""

    def __init__(self, *units: Unit) -> None:
        super().__init__()
        self.first = sn.LayerChoice([nn.Linear(3, 4), nn.Linear(3, 5)])
        self.second = sn.LayerChoice([nn.Linear(3, 4), nn.Linear(3, 5)])
        self.units = nn.ModuleList(units)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.first(x), self.second(x)
        for unit in self.units:
            x = unit(x, a, b)
        return torch.cat([x, a, b], 1)


INPUTS = spec_of(((torch.zeros(4, 3),), {}))


def arch(first: int, second: int) -> dict[str, Any]:
    return {"first": first, "second": second}


def settled(*units: Unit) -> Recordings:
    """The recordings of a space, with what its covering archs write settled."""
    recordings = Recordings(Net(*units))
    with recordings.covering():
        held = [recordings.program(found, INPUTS) for found in recordings.structure.covering()]
    recordings.settle(held)
    return recordings


def written(body: Callable[[Any, Tensor], Any]) -> dict[str, tuple[str, ...]]:
    recordings = settled(Unit(lambda unit, x, a, b: body(unit, x)))
    return recordings.recorder.written


def norm(unit: Any, x: Tensor) -> Tensor:
    return F.batch_norm(x, unit.seen, unit.var, training=True)


def norm_of_instances(unit: Any, x: Tensor) -> Tensor:
    return F.instance_norm(x[:, :, None].expand(-1, -1, 2), unit.seen, unit.var)[:, :, 0]


BOTH = {"units.0": ("units.0.seen", "units.0.var")}
INNER = {"units.0": ("units.0.inner.seen",)}
WAYS: dict[str, tuple[Callable[[Any, Tensor], Any], dict[str, tuple[str, ...]]]] = {
    "in place": (lambda unit, x: unit.inner.seen.add_(1), INNER),
    "an item": (lambda unit, x: unit.inner.seen.__setitem__(0, 1.0), INNER),
    "data": (lambda unit, x: unit.inner.seen.data.mul_(2), INNER),
    "detached": (lambda unit, x: unit.inner.seen.detach().fill_(2), INNER),
    "a view": (lambda unit, x: unit.inner.seen[1:].t().fill_(2), INNER),
    "out": (lambda unit, x: torch.add(x[0], 1, out=unit.inner.seen), INNER),
    "foreach": (lambda unit, x: torch._foreach_add_([unit.inner.seen], 1), INNER),
    "copied": (lambda unit, x: unit.inner.seen.copy_(x.detach().mean(0)), INNER),
    "a norm": (norm, BOTH),
    "a norm of instances": (norm_of_instances, BOTH),
    "a norm that looks": (lambda unit, x: F.batch_norm(x, unit.seen, unit.var, training=False), {}),
    "a read": (lambda unit, x: x + unit.seen.data.view(1, 3) * unit.inner.seen, {}),
    "a copy": (lambda unit, x: x + unit.seen.clone().add_(1), {}),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_write_is_seen_however_it_is_written(way: str) -> None:
    body, names = WAYS[way]

    assert {path: names for path, names in written(body).items() if names} == names


def test_numbers_that_decide_make_every_buffer_one_that_is_written() -> None:
    def body(unit: Any, x: Tensor) -> None:
        if x.sum() > 0:
            unit.seen.add_(1)

    assert written(body) == {"units.0": ("units.0.seen", "units.0.var", "units.0.inner.seen")}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (lambda unit, x: unit.weight.data.mul_(2), "own parameter 'units.0.weight'"),
        (lambda unit, x: unit.weight.detach().clamp_(0, 1), "own parameter 'units.0.weight'"),
        (lambda unit, x: setattr(unit, "weight", nn.Parameter(x.detach()[0])), "own parameter 'units.0.weight'"),
        (lambda unit, x: setattr(unit.weight, "data", x.detach()[0]), "own parameter 'units.0.weight'"),
        (lambda unit, x: setattr(unit.inner, "seen", x.detach()[0]), "replaces its 'inner.seen'"),
        (lambda unit, x: setattr(unit.inner.seen, "data", x.detach()[0]), "replaces its 'inner.seen'"),
        (lambda unit, x: setattr(unit, "nothing", x.detach()[0]), "replaces its 'nothing'"),
        (lambda unit, x: unit.register_buffer("more", x.detach()[0]), "replaces its 'more'"),
    ],
)
def test_what_no_forward_may_do(body: Callable[[Any, Tensor], Any], words: str) -> None:
    """Twice the same words: what the forward has put in its place is put back."""
    recordings = settled(Unit(lambda unit, x, a, b: a.shape < b.shape and body(unit, x)))
    for _ in range(2):
        with pytest.raises(SpaceError) as caught:
            recordings.program(arch(0, 1), INPUTS)
        assert words in str(caught.value) and "test_writes.py:" in str(caught.value)
    recordings.program(arch(1, 0), INPUTS)


def test_a_table_that_numbers_decide_how_to_write() -> None:
    """An embedding with `max_norm` changes its weights in forward."""
    table = nn.Embedding(5, 3, max_norm=1.0)
    with pytest.raises(SpaceError, match=r"own parameter 'units.0.table.weight'"):
        settled(holding(table, lambda unit, x, a, b: x + unit.table(torch.zeros(4, dtype=torch.long, device="meta"))))


def holding(module: nn.Module, body: Callable[..., Any]) -> Unit:
    unit = Unit(body)
    unit.table = module
    return unit


def test_of_a_combination_alone_the_arch_is_named_and_others_go_on() -> None:
    recordings = settled(Unit(lambda unit, x, a, b: a.shape < b.shape and unit.seen.add_(1)))
    for _ in range(3):
        with pytest.raises(SpaceError) as caught:
            recordings.program(arch(0, 1), INPUTS)
        assert "step 'units.0' writes 'units.0.seen', 'units.0.var'" in str(caught.value)
        assert "{'first': 0, 'second': 1}" in str(caught.value)
        with pytest.raises(SpaceError, match="some combinations of choices only"):
            recordings.once(arch(0, 1), INPUTS)
        assert not any(step.written for step in recordings.program(arch(1, 0), INPUTS).steps)
    assert not recordings.recorder.written.get("units.0")


def test_a_look_is_no_training() -> None:
    """A network may be looked at first, or after; it is not trained, and what is looked at settles nothing."""
    unit = Unit(lambda unit, x, a, b: a.shape < b.shape and unit.seen.add_(1))
    recordings = Recordings(Net(unit))
    held: list[Program] = []

    def first() -> None:
        with recordings.covering():
            held.extend(recordings.program(found, INPUTS) for found in recordings.structure.covering())
        recordings.settle(held)

    recordings.settle_first = first
    looked = recordings.program(arch(0, 1), INPUTS, trains=False)
    assert not held and [step.unforeseen for step in looked.steps if step.unforeseen]
    for _ in range(2):
        with pytest.raises(SpaceError, match="some combinations of choices only"):
            recordings.program(arch(0, 1), INPUTS)
        assert recordings.program(arch(0, 1), INPUTS, trains=False) is looked
    assert len(held) == 2


@pytest.mark.parametrize("late", [0, 1])
def test_what_covers_the_space_may_show_a_write_first_or_last(late: int) -> None:
    body = lambda unit, x, a, b: a.shape[1] == 4 + late and unit.seen.add_(1)  # noqa: E731
    recordings = settled(Unit(body))
    for first, second in ((0, 0), (0, 1), (1, 0), (1, 1)):
        steps = recordings.program(arch(first, second), INPUTS).steps
        assert [step.written for step in steps if step.name == "units.0"] == [("units.0.seen", "units.0.var")]


def test_a_second_layer_that_writes_it() -> None:
    """One holds a buffer of the other and writes it for a combination."""
    shared = torch.zeros(3)
    quiet = Unit(lambda unit, x, a, b: None, shared)
    second = Unit(lambda unit, x, a, b: a.shape < b.shape and unit.seen.add_(1), shared)
    recordings = settled(quiet, second)
    with pytest.raises(SpaceError, match=r"step 'units.1' writes 'units.0.seen', 'units.1.var' in forward for some"):
        recordings.program(arch(0, 1), INPUTS)
    always = Unit(lambda unit, x, a, b: unit.seen.add_(1), shared)
    with pytest.raises(SpaceError, match=r"reads buffer 'units.0.seen', which step 'units.0' writes"):
        settled(always, second)


def test_a_layer_that_writes_what_another_one_holds() -> None:
    owner = Unit(lambda unit, x, a, b: None)
    reaching = Unit(lambda unit, x, a, b: a.shape < b.shape and unit.others[0].seen.add_(1))
    reaching.__dict__["others"] = [owner]
    recordings = settled(owner, reaching)
    with pytest.raises(SpaceError, match=r"step 'units.1' writes 'units.0.seen' in forward, which is not its own"):
        recordings.program(arch(0, 1), INPUTS)
