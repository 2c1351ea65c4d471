"""Gradients that lie in one piece are folded like those that do not."""

from __future__ import annotations

from contextlib import suppress
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sennit.memory.gradients import Laid, Lying
from sennit.memory.parcel import bundle, views, windows
from sennit.runtime.fold import GroupFold, Use
from sennit.runtime.wire import described, laid_out

LIKE = {"a": torch.empty(3, 2), "b": torch.empty(5), "c": torch.empty(())}


def part(seed: int, missing: frozenset[str], in_one_piece: bool) -> dict[Use, Tensor | None]:
    """What a run gives for one micro-batch."""
    generator = torch.Generator().manual_seed(seed)
    grads = {name: torch.randn(like.shape, generator=generator) for name, like in LIKE.items()}
    if in_one_piece and not missing:
        flat = torch.empty(1024, dtype=torch.uint8)
        places = tuple((256 * i, tuple(t.shape), tuple(t.stride()), t.dtype) for i, t in enumerate(grads.values()))
        lying = dict(zip(grads, windows(flat, places), strict=True))
        for name, grad in grads.items():
            lying[name].copy_(grad)
        grads = lying
    return {(name, -1): None if name in missing else grad for name, grad in grads.items()}


@given(
    st.lists(st.tuples(st.booleans(), st.frozensets(st.sampled_from("abc"), max_size=1)), min_size=1, max_size=4),
    st.integers(0, 99),
    st.randoms(use_true_random=False),
)
def test_pieces_and_tensors_give_the_same_sums(
    kinds: list[tuple[bool, frozenset[str]]], seed: int, order: object
) -> None:
    folds = [GroupFold(len(kinds), 1, lambda name, grad: grad.clone()) for _ in range(2)]
    places = list(range(len(kinds)))
    order.shuffle(places)
    for j in places:
        one, missing = kinds[j]
        for fold, together in zip(folds, (one, False), strict=True):
            fold.add(j, part(seed + j, missing, together))
    mixed, single = (fold.total for fold in folds)
    assert mixed.keys() == single.keys()
    assert all(torch.equal(mixed[name], single[name]) for name in single)


def sent(part: dict[Use, Tensor | None]) -> dict[Use, Tensor | None]:
    """As it comes from another worker."""
    header, held = described(list(part.values()))
    places, nbytes = laid_out(header.sent())
    flat = torch.empty(nbytes, dtype=torch.uint8)
    for tensor, there in zip(held, views(flat, places), strict=True):
        there.copy_(tensor)
    return dict(zip(part, header.tensors(views(flat, places), torch.device("cpu")), strict=True))


class Additions(TorchDispatchMode):
    """Counts them."""

    n = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.n += function is torch.ops.aten.add_.Tensor
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("turned", [False, True], ids=["as they lie", "in another order"])
@pytest.mark.parametrize("travelled", list(product((False, True), repeat=2)))
def test_one_addition_serves_a_group(travelled: tuple[bool, bool], turned: bool) -> None:
    """Was one for each tensor, and one step for each, if a part had come from another worker."""
    fold = GroupFold(2, 1, lambda name, grad: grad.clone())
    with Additions() as additions:
        for j, far in enumerate(travelled):
            made = part(j, frozenset(), True)
            if turned:
                made = dict(reversed(made.items()))
            fold.add(j, sent(made) if far else made)
    assert fold.whole is not None and bundle(list(fold.total.values())) is not None
    assert additions.n == 1


@given(
    st.lists(st.tuples(st.sampled_from(["apart", "own", "lent", "laid"]), st.booleans()), min_size=1, max_size=4),
    st.integers(1, 2),
    st.integers(0, 99),
    st.randoms(use_true_random=False),
)
def test_what_is_lent_is_copied_before_its_owner_writes_there_again(
    kinds: list[tuple[str, bool]], runs: int, seed: int, order: object
) -> None:
    lent_fold, fold = (GroupFold(len(kinds), runs, lambda name, grad: grad.clone()) for _ in range(2))
    calls = [(j, run) for j in range(len(kinds)) for run in range(runs)]
    order.shuffle(calls)
    for j, run in calls:
        kind, full = kinds[j]
        given = {(name, run): grad for (name, _), grad in part(seed + j, frozenset(), kind != "apart").items()}
        if kind in ("lent", "laid"):
            for grad in given.values():
                assert grad is not None
                grad._base._lent = True  # type: ignore[union-attr]
        fold.add(j, {use: None if grad is None else grad.clone() for use, grad in given.items()})
        if kind == "laid":
            piece = bundle([grad for grad in given.values() if grad is not None])
            assert piece is not None
            given = Laid(given, Lying(tuple(name for name, _ in given), *piece, lent=True))
        if full:
            lent_fold.keep, keep = full_device, lent_fold.keep
            with suppress(MemoryError):
                lent_fold.add(j, given)
                lent_fold.keep = keep
                continue
            lent_fold.keep = keep
        lent_fold.add(j, given)
        for grad in given.values():
            if kind in ("lent", "laid") and grad is not None:
                grad.fill_(float("nan"))
    assert lent_fold.total.keys() == fold.total.keys() == LIKE.keys()
    assert all(torch.equal(lent_fold.total[name], fold.total[name]) for name in LIKE)


def full_device(part: Any) -> Any:
    raise MemoryError
