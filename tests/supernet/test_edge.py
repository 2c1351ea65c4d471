"""`Edge`: why every tensor enters a step through one (contract, rule 1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sennit.supernet import edge
from sennit.supernet.edge import ALIGNMENT, ALONE, APART, FIRST, SECOND, enter, settled

Step = Callable[[Tensor], Tensor]


def steps_that_read_one_value(seed: int) -> tuple[Tensor, list[Step]]:
    """Four layers on one value; the second and the last use it twice."""
    torch.manual_seed(seed)
    w = [torch.randn(64, 64) / 8 for _ in range(4)]
    value = torch.randn(32, 64)
    return value, [
        lambda h: h @ w[0],
        lambda h: torch.tanh(h @ w[1]) * h,
        lambda h: F.gelu(h @ w[2]),
        lambda h: F.softmax(h @ w[3], -1) + h,
    ]


def whole_gradient(value: Tensor, steps: list[Step], through: Step) -> Tensor:
    """Gradient at the value after one backward through everything."""
    leaf = value.clone().requires_grad_()
    made = leaf * 1.0
    total = sum(step(through(made)).square().sum() for step in steps)
    return torch.autograd.grad(total, leaf)[0]  # type: ignore[arg-type]


def step_by_step_gradient(value: Tensor, steps: list[Step], through: Step) -> Tensor:
    """The same with a backward for each step, added from the last step to the first."""
    total: Tensor | None = None
    for step in reversed(steps):
        leaf = value.clone().requires_grad_()
        step(through(leaf)).square().sum().backward()
        assert leaf.grad is not None
        total = leaf.grad if total is None else total + leaf.grad
    assert total is not None
    return total * 1.0


def test_a_value_read_by_several_steps() -> None:
    plain = entered = 0
    for seed in range(20):
        value, steps = steps_that_read_one_value(seed)
        plain += torch.equal(
            whole_gradient(value, steps, lambda h: h), step_by_step_gradient(value, steps, lambda h: h)
        )
        entered += torch.equal(whole_gradient(value, steps, enter), step_by_step_gradient(value, steps, enter))
    assert entered == 20
    assert plain < 20, "without Edge the two sums differ, else Edge would not be needed"


def conv1d_then_line(seed: int) -> tuple[Tensor, Step]:
    torch.manual_seed(seed)
    conv, line = nn.Conv1d(24, 48, 3, padding=1), nn.Linear(48, 48)
    return conv(torch.randn(8, 24, 33)).detach().transpose(1, 2), lambda h: line(h)


def channels_last(seed: int) -> tuple[Tensor, Step]:
    torch.manual_seed(seed)
    first = nn.Conv2d(16, 32, 3, padding=1).to(memory_format=torch.channels_last)
    second = nn.Conv2d(32, 32, 3, padding=1)
    x = torch.randn(4, 16, 12, 12).contiguous(memory_format=torch.channels_last)
    return first(x).detach(), lambda h: second(h)


@pytest.mark.parametrize("make", [conv1d_then_line, channels_last])
def test_strides_are_lost_on_the_way_and_do_not_matter(make: Callable[[int], tuple[Tensor, Step]]) -> None:
    """A tensor that travelled is contiguous; through an Edge the next step gives the same bits both ways."""
    for seed in range(10):
        value, step = make(seed)
        assert not value.is_contiguous()
        results = []
        for held in (value, value.contiguous()):
            leaf = held.detach().requires_grad_()
            out = step(enter(leaf))
            out.square().sum().backward()
            assert leaf.grad is not None
            results.append((out.detach(), leaf.grad.contiguous()))
        assert torch.equal(results[0][0], results[1][0]) and torch.equal(results[0][1], results[1][1])


def test_forward_and_gradient_are_settled() -> None:
    seen: list[Tensor] = []
    leaf = torch.randn(4, 6, requires_grad=True)
    out = enter(leaf.t())
    out.register_hook(seen.append)
    assert out.is_contiguous() and torch.equal(out, leaf.t())
    inner = enter(out)
    inner.backward(torch.ones(1).expand(6, 4))
    assert seen[0].is_contiguous() and seen[0].stride() == (4, 1)
    assert leaf.grad is not None and leaf.grad.shape == (4, 6)


ODD = [((4, 6, 1, 1), (6, 1, 6, 6)), ((1, 6), (100, 1)), ((6, 1), (1, 100)), ((4, 1, 5, 2), (10, 1, 2, 1))]
"""Shapes with strides that are contiguous, and that no new tensor has."""


@pytest.mark.parametrize(("shape", "strides"), ODD)
@pytest.mark.parametrize("use", [APART, ALONE, FIRST])
@pytest.mark.parametrize("known", [True, False])
def test_a_dimension_of_size_1_has_the_stride_of_a_new_tensor(
    shape: tuple[int, ...], strides: tuple[int, ...], use: int, known: bool
) -> None:
    """torch takes channels to come last by such strides."""
    odd = torch.randn(shape).as_strided(shape, strides)
    new = torch.empty(shape).stride()
    assert odd.is_contiguous() and odd.stride() != new == edge.strides_of(shape)
    assert settled(odd).stride() == new and torch.equal(settled(odd), odd)
    assert enter(odd, use, known).stride() == new
    assert enter((odd.clone().requires_grad_() * 1).as_strided(shape, strides), use, known).stride() == new


def test_unaligned_memory_is_copied_and_aligned_memory_is_not() -> None:
    block = torch.arange(64, dtype=torch.float32)
    start = (-block.data_ptr() % ALIGNMENT["cpu"]) // 4
    aligned, unaligned = block[start : start + 16], block[start + 1 : start + 17]
    assert settled(aligned) is aligned
    moved = settled(unaligned)
    assert moved.data_ptr() % ALIGNMENT["cpu"] == 0 and torch.equal(moved, unaligned)
    assert settled(block[:0]).numel() == 0 and settled(torch.tensor(3.0)).dim() == 0


def test_without_a_gradient_an_edge_is_only_settled() -> None:
    x = torch.randn(3, 3)
    assert enter(x).grad_fn is None
    leaf = torch.randn(3, 3, requires_grad=True)
    with torch.no_grad():
        assert enter(leaf).grad_fn is None
    assert enter(leaf).grad_fn is not None and not enter(torch.tensor([1, 2])).requires_grad


def test_an_edge_is_a_tensor_of_its_own() -> None:
    leaf = torch.randn(3, requires_grad=True)
    one, two = enter(leaf), enter(leaf)
    assert one is not leaf and one is not two
    (one * 2 + two * 3).sum().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [5.0] * 3


@pytest.mark.parametrize(
    "grad",
    [
        torch.ones(1).expand(4, 6, 5, 2),
        torch.randn(4, 6, 5, 2).to(memory_format=torch.channels_last),
        torch.randn(241)[1:].view(4, 6, 5, 2),
        torch.randn(24).as_strided((4, 6, 1, 1), (6, 1, 6, 6)),
    ],
    ids=["expanded", "channels-last", "unaligned", "strides of 1"],
)
@pytest.mark.parametrize("use", [APART, ALONE, FIRST])
def test_any_gradient_arrives_settled(grad: Tensor, use: int) -> None:
    found: list[Tensor] = []
    made = torch.zeros(grad.shape, requires_grad=True) * 1
    out = enter(made, use)
    assert (out is made) == (use == ALONE)
    made.register_hook(found.append)
    out.backward(grad)
    (arrived,) = found
    assert torch.equal(arrived, grad)
    assert arrived.stride() == torch.empty(grad.shape).stride() and arrived.data_ptr() % ALIGNMENT["cpu"] == 0


@pytest.mark.parametrize("use", [APART, ALONE, FIRST, SECOND])
def test_hooks_of_a_step_stay_its_own(use: int) -> None:
    """A module may hang a hook on what it is given: no other tensor gets it, and those that are there stay."""
    seen: list[str] = []
    made = torch.zeros(3, requires_grad=True) * 1
    made.register_hook(lambda grad: seen.append("maker"))
    out = enter(made, use)
    out.register_hook(lambda grad: seen.append("reader"))
    other = enter(torch.zeros(3, requires_grad=True) * 1, use)
    other.sum().backward()
    assert not seen
    out.sum().backward()
    assert sorted(seen) == ["maker", "reader"]


def test_a_gradient_that_never_comes_stays_away() -> None:
    """Also where a backward says so: a parameter before it gets no gradient of zeros, which would be stepped with."""
    for use in (APART, ALONE, FIRST, SECOND):
        leaf = torch.zeros(3, requires_grad=True)
        Swallow.apply(enter(leaf * 1, use)).sum().backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is None
        one, two = (torch.zeros(4, requires_grad=True) * 1).chunk(2)
        enter(one, use), enter(two, use).sum().backward()


@pytest.mark.parametrize("use", [ALONE, FIRST, SECOND])
def test_a_leaf_keeps_no_hook(use: int) -> None:
    """It would stay with it from one use to the next."""
    leaf = torch.zeros(3, requires_grad=True)
    assert enter(leaf, use) is not leaf and leaf._backward_hooks is None


@pytest.mark.parametrize("use", [APART, ALONE, FIRST])
def test_a_hook_of_the_maker_finds_a_settled_gradient(use: int) -> None:
    """As it does where the readers are on another worker: what it computes may depend on how numbers lie."""
    strides: list[tuple[int, ...]] = []
    made = torch.zeros(4, 6, 5, 2, requires_grad=True) * 1
    made.register_hook(lambda grad: strides.append(grad.stride()))
    grad = torch.randn(4, 6, 5, 2).to(memory_format=torch.channels_last)
    out = enter(made, use)
    out.backward(grad)
    assert strides == [made.stride()]


@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels-last"])
@pytest.mark.parametrize("known", [False, True])
def test_two_steps_add_up_as_if_each_were_apart(last: bool, known: bool) -> None:
    """Sums of uses are settled one by one, or their sum is: the same numbers, settled for the maker. Each step uses the
    value several times, over ways of different length, and the second step's way to the loss is the longer one."""
    value = torch.randn(2, 3, 4, 4)
    if last:
        value = value.to(memory_format=torch.channels_last)

    def gradient(uses: list[int]) -> Tensor:
        leaf, seen = value.clone().requires_grad_(), list[Tensor]()
        made = Pass.apply(leaf, seen.append)  # type: ignore[no-untyped-call]
        h = enter(made, uses[0], known)
        one = (torch.tanh(h) * h + torch.sin(torch.exp(h * 0.3))) * h * weights[0]
        h = enter(made, uses[1], known)
        two = torch.sigmoid(torch.cos(h) * h).exp() * h + h * weights[1] + torch.tanh(torch.tanh(h))
        ((one * 1.7).sum() + torch.tanh(torch.tanh(two) * 0.1).sum() * 3.1).backward()
        (grad,) = seen
        assert grad.is_contiguous() and not grad.data_ptr() % ALIGNMENT["cpu"]
        return grad

    for seed in range(20):
        torch.manual_seed(seed)
        weights = [torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last), torch.randn(2, 3, 4, 4)]
        assert torch.equal(gradient([FIRST, SECOND]), gradient([APART] * 2)), seed


class Pass(torch.autograd.Function):
    """Hands its input on, and tells what gradient it is given."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, tell: Callable[[Tensor], None]) -> Tensor:
        ctx.tell = tell
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        ctx.tell(grad)
        return grad, None


class Swallow(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:  # type: ignore[override]
        return None
