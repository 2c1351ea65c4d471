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
    out = called(at, [made], [use], layer)[1]
    out.backward(torch.randn(out.shape))
    return found[0]


def called(
    at: Landing, values: list[Tensor], uses: list[int], layer: Callable[..., Tensor]
) -> tuple[list[Tensor], Tensor]:
    """What a layer is given, and what it makes; as `run_step` does it."""
    entered = at.enter(values, uses)
    out = layer(*entered)
    if at.watching:
        at.look(entered, out)
    return entered, out


@pytest.mark.parametrize("use", [APART, ALONE, FIRST, SECOND])
def test_a_gradient_that_lands_settled_needs_no_hook(use: int) -> None:
    at = Landing(1)
    first = gradient(at, use, nn.ReLU())
    assert at.settled == [True]
    made = torch.randn(SHAPE, requires_grad=True) * 1
    assert at.enter([made], [use])[0] is made
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


def twice(x: Tensor) -> Tensor:
    return x.sigmoid() * x


class Attending(nn.Module):
    """Uses what it is given three times, by one module."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(6, 1, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.flatten(1, 2), x.flatten(1, 2), x.flatten(1, 2))[0].view(x.shape)


LAYERS: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    "ReLU": (nn.ReLU(), True), "Conv2d": (nn.Conv2d(8, 8, 3, padding=1), True), "turned": (turned, True),
    "twice": (twice, False), "square": (lambda x: x * x, False), "attention": (Attending(), False),
    "late": (lambda x: x.sin() + x, False), "itself": (lambda x: x, False), "unused": (torch.zeros_like, False),
    "in parts": (lambda x: torch.cat(x.chunk(2, 1), 1), True),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_a_sum_of_its_own_is_one_of_several_edges(name: str) -> None:
    layer, once = LAYERS[name]
    at = Landing(1)
    called(at, [torch.randn(SHAPE, requires_grad=True) * 1], [FIRST], layer)
    assert at.once == (None if name == "unused" else [once])


@pytest.mark.parametrize(
    "readers", [["Conv2d", "twice"], ["twice", "Conv2d", "late"], ["square", "ReLU", "turned", "twice"]]
)
@pytest.mark.parametrize("chained", [True, False], ids=["one behind the other", "side by side"])
def test_sums_of_several_readers_have_the_bits_of_views(
    readers: list[str], chained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    uses = [FIRST, SECOND] if len(readers) == 2 else [APART] * len(readers)
    landings = [Landing(2 if chained else 1) for _ in readers]

    def gradient_of_all(counted: bool) -> Tensor:
        torch.manual_seed(1)
        found: list[Tensor] = []
        value = torch.randn(SHAPE, requires_grad=True) * 1
        value.register_hook(found.append)
        total = torch.zeros(SHAPE)
        for name, use, at in zip(readers, uses, landings, strict=True):
            layer = LAYERS[name][0]
            if chained:
                entered, total = called(at, [value, total], [use, ALONE], lambda x, y, of=layer: of(x) + y.tanh())
            else:
                entered, out = called(at, [value], [use], layer)
                total = total + out * torch.randn(SHAPE)
            if counted and use == APART and LAYERS[name][1] and name != "turned":
                assert entered[0] is value
        (total * torch.randn(SHAPE)).sum().backward()
        return found[0]

    monkeypatch.setattr(landing, "EVERY", 1)
    views = gradient_of_all(False)
    monkeypatch.setattr(landing, "EVERY", 256)
    for _ in range(2):
        assert torch.equal(gradient_of_all(True), views)


def test_a_count_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "EVERY", 3)
    at = Landing(1)
    gradient(at, FIRST, nn.ReLU())
    gradient(at, FIRST, twice)  # the second call: nobody looks
    with pytest.raises(AssertionError, match="several times"):
        gradient(at, FIRST, twice)


def test_a_count_waits_for_a_graph() -> None:
    at = Landing(1)
    with torch.no_grad():
        called(at, [torch.randn(SHAPE, requires_grad=True)], [FIRST], nn.ReLU())
    assert at.once is None and at.watching
    called(at, [torch.randn(SHAPE, requires_grad=True) * 1], [FIRST], nn.ReLU())
    assert at.once == [True]
