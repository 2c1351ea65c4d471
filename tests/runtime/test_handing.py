"""Gradients of a task: each group is added up once, when all of it is there, whatever is tried again."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from sennit.memory.gradients import Laid, Lying
from sennit.memory.parcel import windows
from sennit.runtime.handing import Handing

NAMES = {"a": ["a.w", "a.b"], "b": ["b.w"], "c": ["c.w"], "d": ["d.w", "d.b"], "far": ["far.w"], "off": ["off.w"]}
USES = [["a"], ["b", "far"], ["a"], ["c"], [], ["d"], ["off"]]
"""Groups of each step: `a` is used twice, `far` and `off` are another worker's."""
OWNER = {"a": 0, "b": 0, "c": 0, "d": 0, "far": 1, "off": 1}
HERE = [group for group in NAMES if not OWNER[group]]


class Steps:
    """Notes what is added up and stepped; the first `full` times the device is full."""

    rank = 0

    def __init__(self, full: int = 0, early: frozenset[int] = frozenset()) -> None:
        self.early = early
        self.groups = SimpleNamespace(
            of_step=lambda step: (USES[step.index], []),
            of_name={name: SimpleNamespace(name=group) for group, names in NAMES.items() for name in names},
            by_name={group: SimpleNamespace(names=names) for group, names in NAMES.items()},
        )
        self.full, self.added, self.stepped = full, list[tuple[str, list[Any]]](), list[str]()

    def add(self, subnet: Any, group: str, micro_batch: int, part: Any) -> bool:
        if self.full:
            self.full -= 1
            raise RuntimeError("out of memory")
        values = {float(grad[0]) for (_, step), grad in part.items() if step not in self.early}
        assert len(values) <= 1, "gradients of one attempt"
        self.added.append((group, sorted(part)))
        return group != "c"  # another micro-batch of it is missing

    def all_in(self, subnet: Any, group: str) -> None:
        self.stepped.append(group)


def given(step: int, laid: bool, value: float = 0.0) -> dict[tuple[str, int], Tensor | None]:
    names = [name for group in USES[step] for name in NAMES[group]]
    if not names:
        return {}
    flat = torch.zeros(64 * len(names), dtype=torch.uint8)
    places = tuple((64 * i, (4,), (1,), torch.float32) for i in range(len(names)))
    held = windows(flat, places, lent=True)
    for window in held:
        window.fill_(value)
    named = dict[tuple[str, int], Tensor | None](zip(((name, step) for name in names), held, strict=True))
    return Laid(named, Lying(tuple(names), flat, places, lent=True)) if laid and USES[step] != ["a"] else named


ALL = sorted((g, sorted((name, n) for n, used in enumerate(USES) for name in NAMES[g] if g in used)) for g in HERE)


@pytest.mark.parametrize("full", [0, 1, 2, 3])
@pytest.mark.parametrize("seed", range(12))
def test_each_group_is_added_up_once_whatever_is_tried_again(seed: int, full: int) -> None:
    draw = random.Random(seed)
    steps = [SimpleNamespace(index=n) for n in range(len(USES))]
    laid, early = [draw.random() < 0.7 for _ in steps], {n for n in range(len(USES)) if draw.random() < 0.3}
    stepping: Any = Steps(full, frozenset(early))
    subnet: Any = SimpleNamespace(read_by_run=[list(NAMES)], owner=OWNER)
    run: Any = SimpleNamespace(index=0, steps=steps)
    handing = Handing(subnet, run, 0, stepping, frozenset())
    order = [step for step in reversed(steps) if step.index not in early]
    tries = 0
    while True:
        tries += 1
        try:
            handing.begin()
            for step in order:
                handing.take(step, given(step.index, laid[step.index], float(tries)))  # type: ignore[arg-type]
            break
        except RuntimeError:
            assert stepping.stepped == []
    before = [group for group, _ in stepping.added]
    assert set(before) == {g for n, (g, *_) in ((3, "c"), (5, "d")) if laid[n] and n not in early}
    rest = {use: grad for n in early for use, grad in given(n, laid[n]).items()}
    while True:
        try:
            handing.end(rest)
            break
        except RuntimeError:
            pass
    assert sorted(stepping.added) == ALL and stepping.stepped == []
    found = {group: sorted(part) for group, part in handing.elsewhere().items()}
    assert found == {"far": [("far.w", 1)], "off": [("off.w", 6)]}
    handing.complete()
    assert sorted(stepping.stepped) == ["a", "b", "d"]


def test_a_group_that_one_step_gives_in_one_piece_is_added_up_at_once() -> None:
    stepping: Any = Steps()
    steps = [SimpleNamespace(index=n) for n in range(len(USES))]
    subnet: Any = SimpleNamespace(read_by_run=[list(NAMES)], owner=OWNER)
    run: Any = SimpleNamespace(index=0, steps=steps)
    handing = Handing(subnet, run, 0, stepping, frozenset())
    handing.begin()
    seen: list[list[str]] = []
    for n in (6, 5, 3, 2, 1, 0):
        handing.take(steps[n], given(n, laid=n != 3))  # type: ignore[arg-type]
        seen.append([group for group, _ in stepping.added])
    assert seen == [[], ["d"], ["d"], ["d"], ["d"], ["d"]], "c does not lie so; a has two uses, b a neighbour"
    handing.end({})
    assert [group for group, _ in stepping.added] == ["d", "a", "b", "c"]
