"""What clipping does to all gradients at once is what it does to one after the other."""

from __future__ import annotations

import math

import pytest
import torch
from tests.gpus import on_gpu
from torch import Tensor

from sennit.supernet.bits import same_bits
from sennit.supernet.clip import Row, grad_norms, scale_, stacked_norms


def gradients(device: str) -> list[Tensor]:
    """Of all kinds: dense and strided, empty, of one number, a window of a larger one, of other types."""
    generator = torch.Generator().manual_seed(7)
    shapes: list[tuple[int, ...]] = [(33, 7), (1000,), (), (0,), (70_001,)]
    made = [torch.randn(shape, generator=generator) * 10.0 ** (i - 2) for i, shape in enumerate(shapes)]
    made += [torch.randn(9, 5, generator=generator).t(), torch.randn(64, generator=generator)[1:40]]
    made += [made[0].to(dtype) for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.complex64)]
    made += [torch.full((3,), 1e-38), torch.tensor([math.inf, -math.inf, math.nan, -0.0])]
    return [grad.to(device) for grad in made]


def check_scaling(device: str) -> None:
    factors = [0.3, 1.0, 0.1, 0.7, 1 / 3, 1e-3, math.nan, 0.9, 1.0, 0.2, 0.6, 0.5, 0.25]
    one, two = gradients(device), gradients(device)
    for grad, by in zip(one, factors, strict=True):
        if by != 1.0:
            grad.mul_(by)
    scale_(zip(two, factors, strict=True))
    assert same_bits([grad.cpu() for grad in one], [grad.cpu() for grad in two])
    assert two[6].isnan().all(), "a NaN factor is applied too"


def check_row(device: str) -> None:
    row, held = Row(), gradients(device)
    for some in (held[:3], held, held[4:6], held * 3, held[3:4]):
        assert same_bits(stacked_norms(some, row).cpu(), stacked_norms(some).cpu())


def test_factors_at_once_or_one_by_one() -> None:
    check_scaling("cpu")
    scale_([])


@on_gpu
def test_factors_at_once_or_one_by_one_on_a_gpu() -> None:
    check_scaling("cuda")


def test_norms_in_memory_that_is_used_again() -> None:
    check_row("cpu")


@on_gpu
def test_norms_in_memory_that_is_used_again_on_a_gpu() -> None:
    check_row("cuda")


@pytest.mark.parametrize("number", range(13))
def test_a_norm_does_not_depend_on_what_is_beside_it(number: int) -> None:
    held = gradients("cpu")
    norms = list(grad_norms({str(i): grad for i, grad in enumerate(held)}).values())
    alone = grad_norms({"": held[number]})[""]
    assert norms[number] == alone or (math.isnan(alone) and math.isnan(norms[number]))
