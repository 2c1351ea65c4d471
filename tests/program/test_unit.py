"""`Units`: what is known of a module's calls, shared by those that compute the same."""

from __future__ import annotations

import torch
from tests.runtime.chain import Block
from torch import nn

from sennit.program.unit import MOST, Units


def test_modules_that_compute_the_same_know_the_same() -> None:
    modules: dict[str, nn.Module] = {
        "a": nn.Linear(3, 3), "b": nn.Linear(3, 3), "wider": nn.Linear(3, 5), "plain": nn.Linear(3, 3, bias=False),
        "frozen": nn.Linear(3, 3).requires_grad_(False), "last": nn.Conv2d(3, 3, 3),
        "first": nn.Conv2d(3, 3, 3).to(memory_format=torch.channels_last),
    }  # fmt: skip
    units = Units(modules)
    assert units.at("a").landings is units.at("b").landings and units.at("a") is units.at("a")
    others = [units.at(name).landings for name in modules if name != "b"]
    assert len({id(landings) for landings in others}) == len(others)


def test_calls_are_told_apart_by_what_they_read() -> None:
    unit = Units({"a": nn.ReLU()}).at("a")
    x = torch.zeros(2, 3)
    settings = [(torch.device("cpu"), "fp32"), (torch.device("cpu"), "bf16"), (torch.device("meta"), "fp32")]
    found = [unit.landing([x], setting) for setting in settings]
    found += [unit.landing([x.clone().requires_grad_()], settings[0]), unit.landing([x.double()], settings[0])]
    found += [unit.landing([torch.zeros(3, 2)], settings[0]), unit.landing([x, (2, 3)], settings[0])]
    assert len({id(one) for one in found}) == len(found)
    assert unit.landing([x + 1], settings[0]) is found[0]
    for n in range(3 * MOST):
        unit.landing([torch.zeros(n)], settings[0])
    assert len(unit.landings) <= MOST


def test_code_of_the_users_own_is_not_known() -> None:
    assert not Units({"a": Block(6, 0.1)}).at("a").torch_only
