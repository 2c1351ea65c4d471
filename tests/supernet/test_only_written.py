"""Optimizers of a supernet: torch's own steps, on the parameters that have a gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.gpus import on_gpu
from torch import Tensor, nn

from sennit.supernet.optim import make_optimizer

CASES: list[tuple[str, type[torch.optim.Optimizer], dict[str, Any]]] = [
    ("sgd", torch.optim.SGD, {}),
    ("sgd", torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-3}),
    ("adam", torch.optim.Adam, {"amsgrad": True}),
    ("adamw", torch.optim.AdamW, {"weight_decay": 0.1}),
]


def layers() -> list[nn.Parameter]:
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(5, 3)) for _ in range(6)]


def gradients(turn: int, count: int) -> list[Tensor | None]:
    """Another half of the parameters at every turn."""
    torch.manual_seed(turn + 1)
    return [torch.randn(5, 3) if (n + turn) % 2 else None for n in range(count)]


@pytest.mark.parametrize(("name", "torchs", "arguments"), CASES)
def test_bits_and_state_are_those_of_torch(
    name: str, torchs: type[torch.optim.Optimizer], arguments: dict[str, Any]
) -> None:
    ours, theirs = layers(), layers()
    named = [(f"p{n}", p) for n, p in enumerate(ours)]
    one = make_optimizer(name, arguments, named, 0.1)
    two = torchs(theirs, lr=0.1, foreach=False, **arguments)  # type: ignore[call-arg]
    assert isinstance(one, torchs) and type(one).__name__ == torchs.__name__
    for turn in range(5):
        for p, q, grad in zip(ours, theirs, gradients(turn, len(ours)), strict=True):
            p.grad, q.grad = grad, None if grad is None else grad.clone()
        for optimizer in (one, two):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        assert all(p.grad is None for p in ours)
    assert all(torch.equal(p, q) for p, q in zip(ours, theirs, strict=True))
    for p, q in zip(ours, theirs, strict=True):
        assert one.state[p].keys() == two.state[q].keys()
        for key, held in two.state[q].items():
            assert one.state[p][key] is held or torch.equal(one.state[p][key], held)


@pytest.mark.parametrize(("name", "torchs", "arguments"), CASES)
def test_torch_is_shown_what_has_a_gradient_and_nothing_else(
    name: str, torchs: type[torch.optim.Optimizer], arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[int] = []
    original: Any = torchs._init_group  # type: ignore[attr-defined]

    def collect(self: Any, group: dict[str, Any], *lists: Any) -> Any:
        shown.append(len(group["params"]))
        return original(self, group, *lists)

    monkeypatch.setattr(torchs, "_init_group", collect)
    held = layers()
    optimizer = make_optimizer(name, arguments, [(f"p{n}", p) for n, p in enumerate(held)], 0.1)
    held[3].grad = torch.ones(5, 3)  # given by hand: no backward has come by
    optimizer.step()
    assert shown == [1] and len(optimizer.param_groups[0]["params"]) == len(held)


def test_gradients_are_kept_as_zeros_where_that_is_asked_for() -> None:
    held = layers()
    optimizer = make_optimizer("sgd", {}, [(f"p{n}", p) for n, p in enumerate(held)], 0.1)
    held[2].grad = torch.ones(5, 3)
    optimizer.zero_grad(set_to_none=False)
    assert held[2].grad is not None and not held[2].grad.any() and held[1].grad is None


@pytest.mark.parametrize(("name", "kind", "arguments"), CASES)
def test_where_parameters_are_when_they_step_says_how(
    name: str, kind: type[torch.optim.Optimizer], arguments: dict[str, Any]
) -> None:
    """Not where they were when the optimizer was made: `--offload` makes it before anything is on the GPU."""
    optimizer = make_optimizer(name, arguments, [("a", layers()[0])], 0.1)
    assert optimizer.param_groups[0]["foreach"] is (False if name == "sgd" else None)


def moved(name: str, arguments: dict[str, Any], early: bool) -> list[Tensor]:
    """Parameters after steps on a GPU; the optimizer is made before they are there, or after."""
    made = layers()
    if early:
        optimizer = make_optimizer(name, arguments, [(str(n), p) for n, p in enumerate(made)], 0.1)
        for parameter in made:
            parameter.data = parameter.data.cuda()
    else:
        made = [nn.Parameter(p.detach().cuda()) for p in made]
        optimizer = make_optimizer(name, arguments, [(str(n), p) for n, p in enumerate(made)], 0.1)
    for turn in range(9):
        for parameter, grad in zip(made, gradients(turn, len(made)), strict=True):
            parameter.grad = None if grad is None else grad.cuda()
        optimizer.step()
    return [parameter.detach().cpu() for parameter in made]


@on_gpu
@pytest.mark.parametrize(("name", "kind", "arguments"), CASES)
def test_an_optimizer_that_is_made_before_its_parameters_move(
    name: str, kind: type[torch.optim.Optimizer], arguments: dict[str, Any]
) -> None:
    early, late = (moved(name, arguments, early) for early in (True, False))
    assert all(torch.equal(one, two) for one, two in zip(early, late, strict=True))
