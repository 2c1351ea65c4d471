"""Clipping factors that a device computes are those that the host computes, to the bit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.gpus import on_gpu
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sennit.supernet import factors as there
from sennit.supernet.bits import same_bits
from sennit.supernet.clip import factor, fold_norms, grad_norms, scale_
from sennit.supernet.factors import MOST, Factors, computable, scale_there_

HUGE, DENORMAL = float(np.finfo(np.float32).max), 1e-45
ODD = [0.0, -0.0, DENORMAL, 1e-38, 1e-20, 1.0, 2.0**27, HUGE, math.inf, -math.inf, math.nan]
LIMITS = [1e-45, 1e-30, 1e-6, 0.1, 1.0, 3.0, 1e30, 1e300, math.inf]

floats = st.floats(width=32) | st.sampled_from(ODD)
limits = st.sampled_from(LIMITS) | st.floats(min_value=1e-300, allow_nan=False)


def same(one: Tensor, two: Tensor) -> bool:
    """To the bit; any NaN for a NaN, whose sign and payload a CPU picks by the order of the operands."""
    assert one.dtype == two.dtype and one.shape == two.shape
    nan = one.isnan()
    return torch.equal(nan, two.isnan()) and same_bits(one.masked_fill(nan, 0.0), two.masked_fill(nan, 0.0))


def by_host(limit: float, groups: Sequence[dict[str, Tensor]]) -> list[float]:
    return [factor(limit, fold_norms(grad_norms(grads))) for grads in groups]


def check(limit: float, groups: Sequence[dict[str, Tensor]], known: Factors | None = None) -> None:
    """Factors and what they make of the gradients, against the host's."""
    expected = by_host(limit, groups)
    copies = [{name: grad.clone() for name, grad in grads.items()} for grads in groups]
    scale_((grad, by) for grads, by in zip(copies, expected, strict=True) for grad in grads.values())
    known = Factors(limit) if known is None else known
    exact = torch.tensor(expected, dtype=torch.float64)
    assert same(known.exact(groups)[: len(groups)].cpu(), exact)  # rounded, most mistakes would not be seen
    found = known.of(groups)
    assert same(torch.stack([by.cpu() for by in found]), exact.float())
    devices = [next(iter(grads.values())).device for grads in groups]
    assert [(by.dtype, by.shape, by.device) for by in found] == [(torch.float32, (), device) for device in devices]
    scale_there_((list(grads.values()), by) for grads, by in zip(groups, found, strict=True))
    for grads, copy in zip(groups, copies, strict=True):
        assert all(same(grad.cpu(), copy[name].cpu()) for name, grad in grads.items())


def of_sizes(sizes: Sequence[Sequence[int]], device: str = "cpu", spread: float = 6.0) -> list[dict[str, Tensor]]:
    """Random gradients of groups; names are not given in their order."""
    generator = torch.Generator().manual_seed(len(sizes))
    groups: list[dict[str, Tensor]] = []
    for held in sizes:
        powers = (torch.rand(len(held), generator=generator) - 0.5) * 2 * spread
        names = [f"p{i}" for i in torch.randperm(len(held), generator=generator).tolist()]
        made = [torch.randn(n, generator=generator) * 10.0**power for n, power in zip(held, powers, strict=True)]
        groups.append({name: grad.to(device) for name, grad in zip(names, made, strict=True)})
    return groups


@given(limits, st.lists(st.lists(floats, min_size=1, max_size=9), min_size=1, max_size=6))
def test_any_norms(limit: float, norms: list[list[float]]) -> None:
    """A gradient of one number has it for a norm."""
    groups = [{f"p{i * 7 % 11}": torch.tensor([norm]) for i, norm in enumerate(held)} for held in norms]
    check(limit, groups)


@given(limits, st.lists(st.lists(st.lists(floats, max_size=5), min_size=1, max_size=4), min_size=1, max_size=4))
def test_any_gradients(limit: float, groups: list[list[list[float]]]) -> None:
    check(limit, [{f"p{i * 3 % 5}": torch.tensor(grad) for i, grad in enumerate(held)} for held in groups])


@pytest.mark.parametrize("number", ODD)
@pytest.mark.parametrize("limit", LIMITS)
def test_a_factor_applies_to_odd_numbers(limit: float, number: float) -> None:
    made = torch.tensor([number, 1.0, -0.0, DENORMAL])
    check(limit, [{"a": made}, {"b": torch.tensor([3.0, -0.0]), "a": torch.ones(2)}])


SIZES = [[[5, 70_001, 3]], [[4] * 12] * 13, [[9], [1, 2, 3], [0, 7], [0], [33] * MOST]]


def check_again(device: str) -> None:
    """Memory that is used again, and grows, holds nothing of the calls before."""
    for limit in (0.7, 1e-3):
        known = Factors(limit)
        for sizes in (SIZES[0], SIZES[1], SIZES[2][:2], SIZES[0], SIZES[2], SIZES[1][:4], [[1]]):
            check(limit, of_sizes(sizes, device), known)


def check_layouts(device: str) -> None:
    wide = of_sizes([[48, 40]], device)[0]
    check(0.1, [{"a": wide["p0"].reshape(-1, 8).t(), "b": wide["p1"][1:20]}, {"a": wide["p1"][20:].reshape(4, 5)}])


def check_odd(device: str) -> None:
    for limit in LIMITS:
        for number in ODD:
            made = torch.tensor([number, 1.0, -0.0, DENORMAL], device=device)
            check(limit, [{"a": made, "b": made.flip(0).clone()}, {"a": torch.ones(3, device=device)}])


def check_spread(device: str) -> None:
    """Factors from far below 1 to 1 beside each other, on gradients of all sizes."""
    for i in range(20):
        sizes = [[1 + 37 * (i + k) % 400 for k in range(1 + group)] for group in range(12)]
        check(10.0 ** (i / 4 - 3), of_sizes(sizes, device))


def test_memory_is_used_again() -> None:
    check_again("cpu")


def test_gradients_that_are_not_contiguous() -> None:
    check_layouts("cpu")


def test_factors_of_all_sizes() -> None:
    check_spread("cpu")


@on_gpu
def test_a_gpu_has_the_factors_of_the_host() -> None:
    check_again("cuda")
    check_layouts("cuda")
    check_odd("cuda")
    check_spread("cuda")


@on_gpu
def test_no_host_waits_for_a_gpu() -> None:
    groups = of_sizes(SIZES[1], "cuda")
    known = Factors(0.1)
    known.of(groups)  # takes memory
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        scale_there_((list(grads.values()), by) for grads, by in zip(groups, known.of(groups), strict=True))
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_what_is_computed_there() -> None:
    assert computable({}) and computable({"a": torch.ones(2), "b": torch.ones(())})
    for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.complex64):
        assert not computable({"a": torch.ones(2), "b": torch.ones(2, dtype=dtype)})
    assert not computable({str(i): torch.ones(1) for i in range(MOST + 1)})


class Called(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_calls_grow_with_the_longest_group_alone() -> None:
    counts: list[int] = []
    for groups, names in ((1, 12), (13, 12), (13, 4)):
        known, pieces = Factors(0.1), [torch.randn(names, 5) for _ in range(groups)]
        held = [dict(zip("abcdefghijkl", piece.unbind(), strict=False)) for piece in pieces]
        known.of(held)
        with Called() as called:
            scale_there_(([piece], by) for piece, by in zip(pieces, known.of(held), strict=True))
        assert "aten._local_scalar_dense.default" not in called.names
        counts.append(len(called.names))
    assert counts[0] == counts[1] == counts[2] + 8 and counts[0] < 30, counts


@pytest.mark.parametrize("wrong", ["reciprocal", "unordered", "unsquared"])
def test_other_arithmetic_would_be_seen(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way to compute nearly the same differs somewhere among the gradients of these tests."""
    if wrong == "reciprocal":
        monkeypatch.setattr(torch, "div", lambda limit, total, out: out.copy_(total.reciprocal() * limit))
    elif wrong == "unordered":
        monkeypatch.setattr(there, "sorted", lambda names: sorted(names, reverse=True), raising=False)
    else:
        monkeypatch.setattr(there, "norms_of", lambda grads: [grad.double().norm().float() for grad in grads])
    with pytest.raises(AssertionError):
        check_spread("cpu")
