"""How steps use values: alone, or as one of two (`enter`)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import sennit as sn
from sennit.program.step import Program
from sennit.space.model_space import ModelSpace
from sennit.supernet.edge import ALONE, APART, FIRST, SECOND


class Two(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, x * 3


class Net(sn.ModelSpace):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.pick = sn.LayerChoice([nn.Linear(4, 4), nn.Identity()])
        self.two = Two()
        self.last = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.pick(self.first(x))  # first: read by pick alone
        one, other = self.two(h)  # h: read by two and by the addition
        end = self.last(one + other) + h  # one, other: from a step that makes both
        return end, end.relu()  # end: read by relu, and a result


def uses(program: Program) -> dict[str, list[int]]:
    return {step.name: [use for _, use in step.entries] for step in program.steps if step.kind != "shape"}


def test_readers_makers_and_results() -> None:
    program = Net().program({"pick": 0}, torch.zeros(2, 4))
    found = uses(program)
    assert found["first"] == [APART]  # an input of the network
    assert found["pick.0"] == [ALONE] and found["two"] == [FIRST] and found["last"] == [ALONE]
    sums = sorted(use for name, use in found.items() if "add" in name)
    assert sums == [[APART, APART], [ALONE, SECOND]]  # of what one step makes two of; of h
    assert [use for name, use in found.items() if "relu" in name] == [[FIRST]]  # a result, too


class Sized(sn.ModelSpace):
    def __init__(self) -> None:
        super().__init__()
        self.lines = nn.Sequential(nn.Linear(4, 4), sn.LayerChoice([nn.Linear(4, 4), nn.Identity()]))

    def forward(self, x: Tensor) -> Tensor:
        h = self.lines(x)
        return h.view(h.shape[0], 2, 2)


def test_who_only_asks_for_a_size_does_not_count() -> None:
    for arch in ({"lines.1": 0}, {"lines.1": 1}):
        found = uses(Sized().program(arch, torch.zeros(2, 4)))
        assert next(use for name, use in found.items() if "view" in name)[0] == ALONE


def test_gradients_are_those_without_programs() -> None:
    """Also where a step hands its input through, and where one value has many readers."""
    for option in (0, 1):
        torch.manual_seed(0)
        net: ModelSpace = Net()
        x = torch.randn(3, 4)
        end, positive = net(x, arch={"pick": option})
        (end.square().sum() + positive.sum()).backward()
        found = {name: p.grad for name, p in net.named_parameters()}
        net.zero_grad()
        h = net.first(x)  # type: ignore[operator]
        h = net.get_submodule(f"pick.{option}")(h)
        plain = net.last(h * 2 + h * 3) + h  # type: ignore[operator]
        (plain.square().sum() + plain.relu().sum()).backward()
        for name, p in net.named_parameters():
            grad = found[name]
            assert (grad is None) == (p.grad is None), name
            assert grad is None or p.grad is None or torch.allclose(grad, p.grad, rtol=1e-5, atol=1e-6)
