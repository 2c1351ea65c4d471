"""Bytes that travel: tensors, and groups between two stores."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sennit.memory.store import VERSION, HostStore
from sennit.recipe import Recipe
from sennit.runtime.hosts.shipping import Shipping
from sennit.runtime.hosts.wire import packed, unpacked
from tests.runtime.runs import recipe

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8]


@settings(max_examples=60, deadline=None)
@given(shape=st.lists(st.integers(0, 4), max_size=3), dtype=st.sampled_from(DTYPES), turned=st.booleans())
def test_tensors_come_as_they_were(shape: list[int], dtype: torch.dtype, turned: bool) -> None:
    tensor = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    tensor = tensor.permute(tuple(reversed(range(tensor.dim())))) if turned else tensor
    came = unpacked(packed(tensor))
    assert came.dtype == dtype and came.is_contiguous() and torch.equal(came, tensor)


def store(made: Recipe) -> HostStore:
    built = made.built
    return HostStore(
        built.recordings.skeleton, built.groups, built.always[0] | built.always[1], made.sharing, made.optimizer_name,
        made.optimizer_arguments,
    )  # fmt: skip


def filled(held: HostStore, group: str, version: int, value: float) -> None:
    """A version, with state."""
    for tensor in held.views[group][held.slot_of(group, version)].values():
        tensor.fill_(value)
    for tensor in held.state_views.get(group, {}).values():
        tensor.fill_(value)
    Shipping(held).state_word(group)[VERSION] = version
    held.publish(group, version)


def all_are(tensors: dict[str, Tensor], value: float) -> bool:
    return all(bool((tensor == value).all()) for tensor in tensors.values())


@pytest.mark.parametrize("state", [True, False])
def test_a_group(state: bool) -> None:
    made = recipe()
    here, there = store(made), store(made)
    group = next(g.name for g in made.built.groups.all if g.kind == "parameters")
    for held in (here, there):
        Shipping(held).begin()
    filled(here, group, 7, 3.0)
    moments: list[int] = []
    Shipping(there).put(Shipping(here).pack(group, 7, state), lambda: moments.append(there.version(group)))
    assert moments == [-1] and there.holds(group, 7)  # told of before the word stands
    assert all_are(there.views[group][0], 3.0) and all_are(there.state_views[group], 3.0 if state else 0.0)
    assert Shipping(there).key(group) == (7 if state else -1)


def test_delayed_without_state_is_not_the_newest() -> None:
    made = recipe(shared="delayed:3")
    here, there = store(made), store(made)
    group = min(here.delayed)
    filled(here, group, 4, 2.0)
    Shipping(there).put(Shipping(here).pack(group, 4, with_state=False))
    assert there.holds(group, 4) and there.version(group) == -1
    Shipping(there).put(Shipping(here).pack(group, 4, with_state=True))
    assert there.version(group) == 4 and all_are(there.current(group), 2.0)
    names = made.built.groups.by_name[group].names
    here.keep_gradient(group, 5, {name: torch.ones_like(here.current(group)[name]) for name in names[:1]})
    Shipping(there).put_gradient(group, 5, Shipping(here).gradient(group, 5))
    came = there.kept_gradient(group, 5)
    assert came is not None and set(came) == set(names[:1]) and all_are(came, 1.0)


def test_buffers_bring_what_was_before() -> None:
    made = recipe()
    here, there = store(made), store(made)
    group = next(g.name for g in made.built.groups.all if g.kind == "buffers")
    for value, word in ((1.0, (4, 2, 0)), (2.0, (5, 0, 0))):
        if word[0] == 5:
            here.remember_buffers(group)
        for tensor in here.views[group][0].values():
            tensor.fill_(value)
        here.move(group, word)
    Shipping(there).put(Shipping(here).pack(group, (5, 0, 0), with_state=True))
    assert Shipping(there).key(group) == (5, 0, 0) and all_are(there.views[group][0], 2.0)
    assert there.take_back(group, 5)
    assert Shipping(there).key(group) == (4, 2, 0) and all_are(there.views[group][0], 1.0)
