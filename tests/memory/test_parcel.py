"""Tensors in one piece: what is done to the piece is done to each of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.gpus import on_gpu
from torch import Tensor, nn

from sennit.memory.group_step import GroupStep, Optimizer
from sennit.memory.layout import Layout, Region
from sennit.memory.parcel import Place, bundle, copy, is_lent, kept, numbers, parcels, views, windows
from sennit.supernet.bits import same_bits

shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)
dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8])


def region(specs: list[tuple[tuple[int, ...], torch.dtype]]) -> Region:
    return Layout().region([(f"t{i}", torch.empty(shape, dtype=dtype)) for i, (shape, dtype) in enumerate(specs)])


@given(st.lists(st.tuples(shapes, dtypes), min_size=1, max_size=6), st.integers(0, 3))
def test_a_parcel_moves_all_its_tensors(specs: list[Any], seed: int) -> None:
    lying = region(specs)
    here, there = (torch.zeros(lying.nbytes, dtype=torch.uint8) for _ in range(2))
    here.random_(generator=torch.Generator().manual_seed(seed))
    ours, theirs = list(lying.views_of(here).values()), list(lying.views_of(there).values())
    for parcel in parcels(ours):
        copy([parcel.of(theirs[parcel.members[0]])], [parcel.of(ours[parcel.members[0]])])
        for again, i in zip(views(parcel.of(ours[parcel.members[0]]), parcel.places), parcel.members, strict=True):
            assert again.data_ptr() == ours[i].data_ptr() or not again.numel()
            assert again.shape == ours[i].shape and again.dtype == ours[i].dtype
    assert same_bits(ours, theirs)
    assert {i for parcel in parcels(ours) for i in parcel.members} == set(range(len(ours)))


def test_two_groups_in_one_memory_are_two_parcels() -> None:
    memory = torch.zeros(4096, dtype=torch.uint8)
    layout = Layout()
    regions = [layout.region([("a", torch.empty(3)), ("b", torch.empty(2))]) for _ in range(2)]
    held = [t for r in regions for t in r.views_of(memory[r.offset : r.offset + r.nbytes]).values()]
    assert [parcel.members for parcel in parcels(held)] == [(0, 1), (2, 3)]


def test_all_windows_of_one_thing_are_a_bundle_and_fewer_are_not() -> None:
    lying = region([((3,), torch.float32), ((2, 2), torch.float32)])
    (parcel,) = parcels(list(lying.views_of(torch.zeros(lying.nbytes, dtype=torch.uint8)).values()))
    flat = numbers(torch.zeros(parcel.nbytes, dtype=torch.uint8))
    both = windows(flat, parcel.places)
    piece = bundle(both)
    assert piece is not None
    piece[0].add_(2.0)
    assert all(bool((t == 2.0).all()) for t in both)
    assert bundle(both[:1]) is None
    assert bundle([both[0], torch.zeros(2, 2)]) is None
    assert bundle([]) is None


def test_windows_of_something_within_something_lie_there() -> None:
    """Pieces of a message are received into one memory."""
    flat = torch.arange(48, dtype=torch.uint8)
    places = [(0, (2,), (1,), torch.uint8), (4, (2,), (1,), torch.uint8)]
    (piece,) = views(flat, [(16, (8,), (1,), torch.uint8)])
    for within in (piece, flat[16:24]):
        assert [t.tolist() for t in windows(within, places)] == [[16, 17], [20, 21]]
    assert bundle(windows(piece, places)) is not None


OPTIMIZERS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("sgd", {}, ()),
    ("sgd", {"momentum": 0.9, "weight_decay": 1e-2, "nesterov": True}, ("momentum_buffer",)),
    ("adam", {"betas": (0.9, 0.98)}, ("exp_avg", "exp_avg_sq", "step")),
    ("adamw", {"amsgrad": True}, ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step")),
]


class Group:
    """Two parameters with their state, as a store lays them out."""

    def __init__(self, keys: tuple[str, ...], device: str) -> None:
        like = {"w": torch.empty(32, 8), "x": torch.empty(64)}
        big = [key for key in keys if key != "step"]
        region = Layout().region(like.items())
        state = Layout().region([(f"{n}.{key}", t) for key in big for n, t in like.items()])
        generator = torch.Generator().manual_seed(3)
        self.flat = torch.zeros(region.nbytes, dtype=torch.uint8, device=device)
        self.parameters = {n: nn.Parameter(t) for n, t in region.views_of(self.flat).items()}
        for parameter in self.parameters.values():
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator))
        self.state = state.views_of(torch.zeros(state.nbytes, dtype=torch.uint8, device=device))
        for n in like:
            self.state[f"{n}.stepped"] = torch.zeros((), dtype=torch.uint8)
            self.state[f"{n}.step"] = torch.zeros(())

    def gradients(self, number: int, together: bool) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(number)
        found = {n: torch.randn(p.shape, generator=generator).to(p.device) for n, p in self.parameters.items()}
        if not together:
            return found
        (parcel,) = parcels(list(self.parameters.values()))
        flat = numbers(torch.zeros(parcel.nbytes, dtype=torch.uint8, device=self.flat.device))
        made = dict(zip(found, windows(flat, parcel.places), strict=True))
        for n, grad in found.items():
            made[n].copy_(grad)
        return made


def stepped(name: str, arguments: dict[str, Any], keys: tuple[str, ...], whole: bool, device: str) -> list[Tensor]:
    """A group after steps of all its parameters, of one of them, and of all again."""
    group = Group(keys, device)
    optimizer = Optimizer(name, arguments, torch.device(device))
    step = GroupStep(optimizer, keys, group.parameters, group.state, whole=whole)
    assert (step.whole is not None) == whole
    for number in range(6):
        grads = group.gradients(number, whole)
        if number == 3:
            del grads["x"]
        step(grads, 0.01)
        if whole and number < 3:
            assert int(group.state["x.stepped"]) == 1
    return [t.cpu() for t in (*group.parameters.values(), *(group.state[key] for key in sorted(group.state)))]


@pytest.mark.parametrize(("name", "arguments", "keys"), OPTIMIZERS)
def test_a_group_steps_in_one_piece_as_its_parameters_do(
    name: str, arguments: dict[str, Any], keys: tuple[str, ...]
) -> None:
    for one, two in zip(*(stepped(name, arguments, keys, whole, "cpu") for whole in (True, False)), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-7)


@on_gpu
@pytest.mark.parametrize(("name", "arguments", "keys"), OPTIMIZERS)
def test_on_a_gpu_the_bits_are_the_same(name: str, arguments: dict[str, Any], keys: tuple[str, ...]) -> None:
    for one, two in zip(*(stepped(name, arguments, keys, whole, "cuda") for whole in (True, False)), strict=True):
        assert torch.equal(one, two)


def test_a_group_that_lies_apart_steps_by_itself() -> None:
    parameters = {n: nn.Parameter(torch.ones(4)) for n in "ab"}
    state = {f"{n}.stepped": torch.zeros((), dtype=torch.uint8) for n in "ab"}
    step = GroupStep(Optimizer("sgd", {}, torch.device("cpu")), (), parameters, state, whole=True)
    assert step.whole is None
    step({"a": torch.ones(4)}, 0.5)
    assert parameters["a"][0].item() == 0.5 and parameters["b"][0].item() == 1.0


def test_what_is_lent_is_kept_as_copies_that_lie_alike() -> None:
    places: tuple[Place, ...] = ((0, (3, 2), (2, 1), torch.float32), (256, (5,), (1,), torch.float32))
    flat = torch.zeros(320, dtype=torch.uint8)
    own, lent = windows(flat, places), windows(flat.clone(), places, lent=True)
    assert all(a is b for a, b in zip(kept(own), own, strict=True))
    assert not any(map(is_lent, own)) and all(map(is_lent, lent))
    for tensors, together in (
        (lent, True),
        (lent[::-1], True),
        (lent[:1], False),
        ([lent[1].view(5, 1), lent[0]], False),
    ):
        lent[0].zero_()
        copies = kept(tensors)
        assert not any(map(is_lent, copies)) and (bundle(copies) is not None) == together
        lent[0].fill_(1.0)
        assert [t.shape for t in copies] == [t.shape for t in tensors]
        assert not any(t.any() for t in copies)
