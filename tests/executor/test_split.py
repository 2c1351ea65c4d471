"""Split backward: the bits of the ordinary one, whatever the operations; weights in W, inputs in I, nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sennit.executor.split import Key, split, weight_gradients


class Twice(nn.Module):
    """One weight for two operations."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.other = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.other(F.linear(F.relu(F.linear(x, self.weight)), self.weight.t()))


class Clamped(nn.Module):
    """A weight that goes through operations of its own first."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.scale = nn.Parameter(torch.randn(8, 8)), nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.clamp(-1, 1).exp()) * self.scale


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = nn.MultiheadAttention(8, 2, batch_first=True), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.inner(x, x, x)[0])


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.GRU(8, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)[0]


class LastAxis(nn.Module):
    """(B, L, D) to and from (B, D, L)."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.transpose(1, 2)).transpose(1, 2)


MODULES: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "linear": (lambda: nn.Linear(8, 8), 2),
    "linear without bias": (lambda: nn.Linear(8, 8, bias=False), 1),
    "layer norm": (lambda: nn.LayerNorm(8), 2),
    "conv": (lambda: LastAxis(nn.Conv1d(8, 8, 3, padding=1)), 2),
    "depthwise conv": (lambda: LastAxis(nn.Conv1d(8, 8, 3, padding=1, groups=8)), 2),
    "transposed conv": (lambda: LastAxis(nn.ConvTranspose1d(8, 8, 3, padding=1)), 2),
    "batch norm": (lambda: LastAxis(nn.BatchNorm1d(8)), 2),
    "group norm": (lambda: LastAxis(nn.GroupNorm(2, 8)), 2),
    "attention": (Attention, 6),
    "recurrent": (Recurrent, 2),
    "a chain": (lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 8)), 6),
    "through operations of its own": (Clamped, 2),
    "a weight used twice": (Twice, 2),
}
"""Module and how many of its weights are left for later."""


def graph(module: nn.Module, x: Tensor, precision: str) -> tuple[list[Tensor], dict[Key, Tensor]]:
    """A run of the module whose output leaves, and which also uses it inside."""
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16", cache_enabled=False):
        y = module(x)
        roots = [y, torch.tanh(y).sum(-1)]
    return roots, {(name, -1): p for name, p in module.named_parameters()}


def in_two_parts(
    roots: list[Tensor], leaves: dict[Key, Tensor], values: list[Tensor], given: list[Tensor], hooked: bool = False
) -> tuple[Mapping[Key, Tensor | None], Mapping[Key, Tensor | None], Sequence[Tensor | None]]:  # fmt: skip
    """Gradients of weights that I gives, of those that W gives, and of values."""
    parts = split(roots, leaves, values, hooked=hooked)
    edges = [edge for joint in parts.joints for edge in joint.edges]
    wanted: list[Any] = [*values, *edges, *(leaves[key] for key in parts.whole)]
    found = list(torch.autograd.grad(roots, wanted, given, retain_graph=True))
    arrived = iter(found[len(values) : len(values) + len(edges)])
    for joint in parts.joints:
        joint.grads = [next(arrived) for _ in joint.edges]
    now = dict(zip(parts.whole, found[len(values) + len(edges) :], strict=True))
    return now, weight_gradients(parts.joints, leaves), found[: len(values)]


@pytest.mark.parametrize("hooked", [False, True], ids=["", "hooked"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("wanted", [True, False], ids=["", "without the input's gradient"])
@pytest.mark.parametrize("name", MODULES)
def test_the_bits_of_an_ordinary_backward(name: str, wanted: bool, precision: str, hooked: bool) -> None:
    """With hooks on whatever any module inside makes, too: what autograd notes at a joint is the gradient before them
    or after, and W calls them again."""
    torch.manual_seed(3)
    make, later = MODULES[name]
    module = make()
    for inner in module.modules() if hooked else ():
        inner.register_forward_hook(lambda module, given, made: _halved(made))
    x = torch.randn(5, 7, 8, requires_grad=wanted)
    values = [x] if wanted else []
    roots, leaves = graph(module, x, precision)
    given = [torch.randn_like(root) for root in roots]
    whole = torch.autograd.grad(roots, [*values, *leaves.values()], given)

    now, after, found = in_two_parts(*graph(module, x, precision), values, given, hooked)
    if wanted:
        assert len(after) == later
    elif not hooked:
        assert len(after) >= later
    assert {*now, *after} == {*leaves} and not {*now} & {*after}
    for value, expected in zip(found, whole[: len(values)], strict=True):
        assert value is not None and torch.equal(value, expected)
    for key, expected in zip(leaves, whole[len(values) :], strict=True):
        grad = {**now, **after}[key]
        assert grad is not None and torch.equal(grad, expected), key


def _halved(made: Any) -> None:
    for tensor in made if isinstance(made, tuple) else (made,):
        if isinstance(tensor, Tensor) and tensor.requires_grad:
            tensor.register_hook(lambda grad: grad * 0.5)


def test_an_embedding_has_no_input_gradient_at_all() -> None:
    module = nn.Embedding(9, 4)
    ids = torch.tensor([[1, 2, 2], [0, 1, 8]])
    leaves = {("weight", -1): module.weight}
    root = module(ids)
    parts = split([root], leaves)
    (joint,) = parts.joints
    joint.grads = [torch.ones_like(root)]
    after = weight_gradients(parts.joints, leaves)
    assert not parts.whole
    expected = torch.autograd.grad(module(ids), module.weight, torch.ones_like(root))[0]
    found = after["weight", -1]
    assert found is not None and torch.equal(found, expected)


def test_what_the_loss_does_not_use_has_no_gradient() -> None:
    used, unused = nn.Linear(4, 4), nn.Linear(4, 4)
    x = torch.randn(2, 4, requires_grad=True)
    leaves = {("used", -1): used.weight, ("unused", -1): unused.weight}
    parts = split([used(x)], leaves)
    assert parts.whole == [("unused", -1)] and [joint.keys for joint in parts.joints] == [[("used", -1)]]
    parts.joints[0].grads = [None]
    assert weight_gradients(parts.joints, leaves) == {("used", -1): None}
