"""`Landing`: a hook that never finds anything to do is left out, and what it would have found is the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from sennit.supernet import landing
from sennit.supernet.edge import ALONE, APART, FIRST, SECOND
from sennit.supernet.landing import Landing

SHAPE = (4, 8, 6, 6)


def turned(x: Tensor) -> Tensor:
    """Its gradient is a view of another one."""
    return x.transpose(2, 3) * 2


def gradient(at: Landing, use: int, layer: Callable[[Tensor], Tensor]) -> Tensor:
    """What arrives at a value that a layer reads."""
    torch.manual_seed(0)
    found: list[Tensor] = []
    made = torch.randn(SHAPE, requires_grad=True) * 1
    made.register_hook(found.append)
    out = layer(at.enter([made], [use])[0])
    out.backward(torch.randn(out.shape))
    return found[0]


@pytest.mark.parametrize("use", [APART, ALONE, FIRST, SECOND])
def test_a_gradient_that_lands_settled_needs_no_hook(use: int) -> None:
    at = Landing(1)
    first = gradient(at, use, nn.ReLU())
    assert at.settled == [True]
    made = torch.randn(SHAPE, requires_grad=True) * 1
    assert (at.enter([made], [use])[0] is made) == (use in (ALONE, SECOND))
    again = gradient(at, use, nn.ReLU())
    assert torch.equal(first, again) and again.stride() == first.stride() == torch.empty(SHAPE).stride()


@pytest.mark.parametrize("use", [APART, ALONE, FIRST, SECOND])
def test_one_that_does_not_is_settled_each_time(use: int) -> None:
    at = Landing(1)
    for _ in range(3):
        found = gradient(at, use, turned)
        assert at.settled == [False] and found.stride() == torch.empty(SHAPE).stride()


def test_one_that_never_comes_says_nothing() -> None:
    at = Landing(2)
    one, two = (torch.randn(3, requires_grad=True) * 1 for _ in range(2))
    given = at.enter([one, two], [ALONE, ALONE])
    (given[1] * 2).sum().backward()
    assert at.settled == [None, True]
    assert at.enter([one, two], [ALONE, ALONE])[0] is not one


def test_what_needs_no_gradient_is_settled_on_the_way_forward() -> None:
    at, odd = Landing(3), torch.randn(5, 3).t()
    size, tensor, wanted = at.enter([(3, 5), odd, odd.requires_grad_() * 1], [APART] * 3)
    assert size == (3, 5) and tensor.is_contiguous() and wanted.is_contiguous() and torch.equal(tensor, odd)
    with torch.no_grad():
        assert at.enter([2, odd, odd * 1], [ALONE] * 3)[2].grad_fn is None
    assert at.settled == [None, None, None]


def test_a_call_is_watched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should a layer ever do otherwise, that is not passed over."""
    monkeypatch.setattr(landing, "EVERY", 3)
    at = Landing(1)
    gradient(at, ALONE, nn.ReLU())
    assert at.settled == [True]
    gradient(at, ALONE, turned)  # the second call: nobody looks
    with pytest.raises(AssertionError, match="landed settled before"):
        gradient(at, ALONE, turned)


def test_calls_in_flight_may_land_in_any_order() -> None:
    at = Landing(1)
    made = [torch.randn(SHAPE, requires_grad=True) * 1 for _ in range(2)]
    outs = [turned(at.enter([value], [ALONE])[0]) for value in made]
    for out in reversed(outs):
        out.sum().backward()
    assert at.settled == [False]
