"""Learning rates, losses of uneven micro-batches, clipping."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sennit.errors import RecipeError, UserError
from sennit.supernet.clip import Clip, factor, fold_norms, grad_norms, scale_
from sennit.supernet.loss import LOSSES, count_terms, cross_entropy, mse, share_of_loss
from sennit.supernet.lr import LrSchedule, lr_at
from sennit.supernet.task import clip_global_, fold_losses, split_batch

# -- learning rate


def test_schedules_at_their_corners() -> None:
    assert [lr_at(0.1, y, 10) for y in (0, 5, 99)] == [0.1] * 3
    cosine = LrSchedule(name="cosine", base=0.8, warmup=4, final=0.2)
    assert [lr_at(cosine, y, 15) for y in range(4)] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert lr_at(cosine, 4, 15) == pytest.approx(0.8) and lr_at(cosine, 9, 15) == pytest.approx(0.5)
    assert lr_at(cosine, 14, 15) == pytest.approx(0.2) == lr_at(cosine, 1000, 15)
    linear = LrSchedule(name="linear", base=1.0)
    assert [lr_at(linear, y, 5) for y in range(6)] == pytest.approx([1.0, 0.75, 0.5, 0.25, 0.0, 0.0])
    root = LrSchedule(name="inverse_sqrt", base=1.0, warmup=4)
    assert [lr_at(root, y, 99) for y in (0, 3, 15, 63)] == pytest.approx([0.25, 1.0, 0.5, 0.25])
    constant = LrSchedule(name="constant", base=0.5, warmup=2)
    assert [lr_at(constant, y, 9) for y in range(4)] == [0.25, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("name", ["constant", "linear", "cosine", "inverse_sqrt"])
@pytest.mark.parametrize("steps", [1, 2, 3, 50])
def test_schedules_stay_within_bounds(name: Any, steps: int) -> None:
    schedule = LrSchedule(name=name, base=0.3, warmup=3, final=0.1)
    rates = [lr_at(schedule, y, steps) for y in range(60)]
    assert all(0 < rate <= 0.3 + 1e-12 for rate in rates)
    assert all(a >= b for a, b in pairwise(rates[3:]))


def test_schedules_that_make_no_sense() -> None:
    for bad in (
        {"base": -1.0},
        {"base": math.nan},
        {"base": 1.0, "warmup": -1},
        {"base": 1.0, "final": -0.1},
    ):
        with pytest.raises(RecipeError, match=r"base >= 0, warmup >= 0 and final >= 0 must hold"):
            LrSchedule(name="linear", **bad)  # type: ignore[arg-type]


# -- loss


def whole(name: str, output: Tensor, target: Tensor) -> Tensor:
    """The mean loss of the whole batch, with torch's own functions."""
    if name == "mse":
        return F.mse_loss(output, target)
    if name == "cross_entropy":
        return F.cross_entropy(output, target)
    smoothing = 0.1 if name.startswith("smoothed") else 0.0
    flat = output.flatten(0, 1)
    return F.cross_entropy(flat, target.flatten(), ignore_index=0, label_smoothing=smoothing)


def batch_for(name: str, rows: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(rows)
    if name == "mse":
        return torch.randn(rows, 3), torch.randn(rows, 3)
    if name == "cross_entropy":
        return torch.randn(rows, 5), torch.randint(0, 5, (rows,))
    target = torch.randint(1, 5, (rows, 6))
    for i in range(rows):
        target[i, 1 + i % 5 :] = 0  # padding, another amount in every row
    return torch.randn(rows, 6, 5), target


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize(("rows", "m"), [(7, 1), (7, 3), (8, 4), (5, 5)])
@pytest.mark.parametrize("counted", [True, False])
def test_shares_of_uneven_micro_batches_add_up_to_the_batch(name: str, rows: int, m: int, counted: bool) -> None:
    output, target = batch_for(name, rows)
    output.requires_grad_()
    function = LOSSES[name]
    if not counted:
        function = lambda o, t, f=LOSSES[name]: f(o, t)  # noqa: E731 - without the attribute `terms`
    outputs, targets = torch.tensor_split(output, m), torch.tensor_split(target, m)
    counts = count_terms(function, targets, outputs[0])
    shares = [share_of_loss(function, o, t, counts, j) for j, (o, t) in enumerate(zip(outputs, targets, strict=True))]
    wanted = whole(name, output, target)
    assert float(sum(shares).detach()) == pytest.approx(float(wanted.detach()), rel=1e-6)  # type: ignore[union-attr]
    for share in shares:
        share.backward(retain_graph=True)
    got, output.grad = output.grad, None
    wanted.backward()
    torch.testing.assert_close(got, output.grad)
    if m > 1 or counted:
        kept = target.numel() if "token" not in name else int((target != 0).sum())
        assert sum(counts) == kept


def test_counting_with_outputs_whose_rows_are_not_the_targets() -> None:
    def flat(output: Tensor, target: Tensor) -> tuple[Tensor, int]:
        assert output.shape[0] == target.numel()
        return output.sum(), target.numel()

    targets = [torch.zeros(3, 4), torch.zeros(2, 4)]
    assert count_terms(flat, targets, torch.ones(12, 5)) == [12, 8]
    assert count_terms(flat, targets, torch.ones(8, 5)) == [12, 8]


def test_a_batch_of_nothing_but_padding_has_loss_zero() -> None:
    target = torch.zeros(2, 3, dtype=torch.long)
    function = LOSSES["token_cross_entropy"]
    counts = count_terms(function, [target], torch.randn(2, 3, 5))
    assert float(share_of_loss(function, torch.randn(2, 3, 5), target, counts, 0)) == 0.0


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda o, t: o.sum(), r"must return \(sum of loss terms, number of terms\)"),
        (lambda o, t: (1.0, 2), r"must return \(sum of loss terms, number of terms\)"),
        (lambda o, t: (o, 2), r"must return a scalar sum, got shape \[2, 3\]"),
    ],
)
def test_a_loss_function_that_returns_something_else(function: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        share_of_loss(function, torch.ones(2, 3), torch.ones(2), [2], 0)


def test_a_loss_function_that_counts_by_its_output() -> None:
    function = lambda o, t: (o.sum(), int((o > 0).sum()))  # noqa: E731
    counts = count_terms(function, [torch.ones(2), torch.ones(2)], torch.ones(2, 3))
    with pytest.raises(UserError, match=r"counted 6 terms in micro-batch 0, but 0 when asked before"):
        share_of_loss(function, torch.ones(2, 3), torch.ones(2), counts, 0)


def test_losses_are_folded_in_float32() -> None:
    assert fold_losses([2.0**24, 1.0, 1.0]) == 2.0**24  # float64 would give 2**24 + 2
    assert fold_losses([1.0, 1.0, 2.0**24]) == 2.0**24 + 2


# -- micro-batches


def test_a_batch_is_split_as_torch_splits() -> None:
    x = {"a": torch.arange(14).view(7, 2), "b": [torch.arange(7)]}
    parts = split_batch(x, torch.arange(7), 3)
    assert [len(y) for _, y in parts] == [3, 2, 2]
    assert torch.equal(torch.cat([p["a"] for p, _ in parts]), x["a"])  # type: ignore[arg-type]
    assert [p["b"][0].tolist() for p, _ in parts] == [y.tolist() for _, y in parts]
    assert split_batch(x, 3, 1)[0][0] is x


def test_a_batch_smaller_than_m() -> None:
    with pytest.raises(UserError, match=r"a batch of 2 rows cannot be split into micro_batches = 3; raise batch_size"):
        split_batch(torch.ones(2, 3), torch.ones(2), 3)
    with pytest.raises(UserError, match=r"must hold tensors, got str and int"):
        split_batch("x", 1, 1)


# -- clipping


def test_clip_is_parsed_strictly() -> None:
    assert Clip.parse("none") == Clip("none")
    assert Clip.parse("global:1.5") == Clip("global", 1.5) and Clip.parse("layer:1e-3") == Clip("layer", 1e-3)
    for bad in (
        "",
        "global",
        "global:",
        "global:0",
        "global:-1",
        "global:nan",
        "norm:1",
        "none:1",
        "layer:x",
    ):
        with pytest.raises(RecipeError, match=r"clip must be 'none', 'global:X' or 'layer:X' with X > 0, got"):
            Clip.parse(bad)


def test_norms_fold_in_sorted_order_in_float64() -> None:
    torch.manual_seed(0)
    grads = {f"layer.{i}": torch.randn(50) * 10.0 ** (i % 7 - 3) for i in range(40)}
    norms = grad_norms(grads)
    assert norms == {name: float(torch.linalg.vector_norm(grad)) for name, grad in grads.items()}
    total = 0.0
    for name in sorted(norms):
        total = total + norms[name] * norms[name]
    assert fold_norms(norms) == math.sqrt(total) == fold_norms(dict(reversed(norms.items())))
    assert fold_norms({}) == 0.0 and grad_norms({}) == {}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64, torch.complex128])
def test_norms_of_gradients_of_any_type(dtype: torch.dtype) -> None:
    """Imaginary parts were left out."""
    grad = torch.randn(50, generator=torch.Generator().manual_seed(1), dtype=torch.complex64)
    grad = (grad if dtype.is_complex else grad.real).to(dtype)
    wide = grad.to(torch.complex128)
    for held in (grad, grad.conj(), grad[::2]):
        expected = float(wide[:: len(grad) // len(held)].abs().square().sum().sqrt())
        assert grad_norms({"a": held})["a"] == pytest.approx(expected, rel=1e-6)


def test_the_fold_is_no_other_sum() -> None:
    small, big = 1.0, 2.0**27  # the small ones vanish beside the big one, if they come after it
    assert fold_norms({"a": big, "b": small, "c": small}) == big
    assert fold_norms({"a": small, "b": small, "c": big}) == math.sqrt(small + small + big * big)


def test_clipping_scales_to_the_limit_or_leaves_alone() -> None:
    torch.manual_seed(1)
    grads = {"a": torch.randn(9), "b": torch.randn(3, 3)}
    mine = {name: grad.clone().requires_grad_() for name, grad in grads.items()}
    for name, parameter in mine.items():
        parameter.grad = grads[name].clone()
    torch.nn.utils.clip_grad_norm_(mine.values(), 0.5)
    kept = {name: grad.clone() for name, grad in grads.items()}
    clip_global_(grads, Clip("global", 0.5))
    for name, grad in grads.items():
        torch.testing.assert_close(grad, mine[name].grad)
    assert math.isclose(fold_norms(grad_norms(grads)), 0.5, rel_tol=1e-5)
    clip_global_(kept, Clip("global", 1e9))
    assert factor(1e9, 3.0) == 1.0 and fold_norms(grad_norms(kept)) > 0.5


def test_what_is_not_finite_is_not_hidden() -> None:
    grads = {"a": torch.tensor([math.nan, 1.0]), "b": torch.ones(2)}
    clip_global_(grads, Clip("global", 1.0))
    assert grads["b"].isnan().all()
    unchanged = {"a": torch.ones(2)}
    scale_((grad, 1.0) for grad in unchanged.values())
    assert unchanged["a"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("output", "target"),
    [((4, 1), (4,)), ((4,), (4, 1)), ((4, 3), (4,)), ((), (4,))],
)
def test_mse_repeats_nothing(output: tuple[int, ...], target: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="mse wants a target of the output's shape"):
        mse(torch.zeros(output), torch.zeros(target))


@pytest.mark.parametrize(
    "target", [torch.zeros(4), torch.zeros(4, 1, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)]
)
def test_cross_entropy_wants_classes(target: torch.Tensor) -> None:
    with pytest.raises(UserError, match="cross_entropy wants output"):
        cross_entropy(torch.zeros(4, 3), target)


@pytest.mark.parametrize("bad", [-1, 3])
def test_a_class_that_there_is_not_is_refused(bad: int) -> None:
    with pytest.raises(UserError, match=r"targets go from .* gives 3 classes, 0 to 2"):
        cross_entropy(torch.zeros(2, 3), torch.tensor([1, bad]))
