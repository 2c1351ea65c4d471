"""Steps that are taken together are those that are taken one by one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from tests.memory.test_parcel import OPTIMIZERS, Group

from sennit.memory.due import Due
from sennit.memory.group_step import GroupStep, Optimizer
from sennit.supernet.bits import same_bits

CPU = torch.device("cpu")


def groups(
    name: str, arguments: dict[str, Any], keys: tuple[str, ...], told: Callable[[], None] | None = None
) -> tuple[Due, list[tuple[Group, GroupStep]]]:
    due = Due(Optimizer(name, arguments, CPU), told)
    made = [Group(keys, "cpu") for _ in range(3)]
    return due, [(group, GroupStep(due.optimizer, keys, group.parameters, group.state)) for group in made]


@pytest.mark.parametrize(("name", "arguments", "keys"), OPTIMIZERS)
def test_together_or_one_by_one(name: str, arguments: dict[str, Any], keys: tuple[str, ...]) -> None:
    results: list[Any] = []
    for together in (True, False):
        told: list[int] = []
        due, held = groups(name, arguments, keys, partial(told.append, 0))
        for turn in range(4):
            steps = [(n, held[n]) for n in range(3) if (n + turn) % 3]  # some have stepped before, some have not
            if together:
                with due.together():
                    for n, (group, step) in steps:
                        due.step(step, group.gradients(turn + n, False), 0.1)
                    assert len(told) == turn, "nothing is taken before the end"
            else:
                for n, (group, step) in steps:
                    due.step(step, group.gradients(turn + n, False), 0.1)
            assert len(told) == (turn + 1 if together else 2 * turn + 2)
        results.append([[*g.parameters.values(), *(g.state[k] for k in sorted(g.state))] for g, _ in held])
    assert same_bits(*results)


def test_another_learning_rate_is_another_step() -> None:
    due, held = groups("sgd", {}, ())
    (one, first), (two, second), _ = held
    before = [g.parameters["x"].detach().clone() for g in (one, two)]
    ones = {"x": torch.ones(64)}
    with due.together():
        due.step(first, ones, 0.5)
        due.step(second, ones, 0.25)
    for group, start, lr in ((one, before[0], 0.5), (two, before[1], 0.25)):
        assert torch.equal(group.parameters["x"], start - lr)


def test_a_group_that_steps_twice_in_a_block_steps_one_after_the_other() -> None:
    """Two subnets under `asp` may have their gradients complete at once."""
    results: list[Any] = []
    for together in (True, False):
        due, held = groups("adam", {}, ("exp_avg", "exp_avg_sq", "step"))
        group, step = held[0]
        with due.together() if together else nullcontext():
            for number in range(3):
                due.step(step, group.gradients(number, False), 0.1)
        assert int(group.state["x.step"]) == 3
        results.append([*group.parameters.values(), *(group.state[k] for k in sorted(group.state))])
    assert same_bits(*results)


def test_a_block_that_fails_takes_nothing() -> None:
    due, held = groups("sgd", {}, ())
    group, step = held[0]
    before = group.parameters["x"].detach().clone()
    with pytest.raises(ZeroDivisionError), due.together():
        due.step(step, {"x": torch.ones(64)}, 0.5)
        raise ZeroDivisionError
    assert torch.equal(group.parameters["x"], before)
