"""Slots over a host store: whatever is done with them, the bits are those of a store that keeps everything."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.memory.late import LateDevice
from tests.memory.test_store import filled, store

from sennit.memory.cpu import CpuStore
from sennit.memory.eviction import LeastRecent
from sennit.memory.slots import SlotStore
from sennit.memory.stepped import Stepped
from sennit.memory.store import HostStore

GROUPS = ("a", "empty", "norm")


class NeverDevice(LateDevice):
    """Copies are done by nothing but waiting."""

    def done(self, copy: int) -> bool:
        return False


def slots(host: HostStore, room: int = 0, wandering: frozenset[str] = frozenset()) -> SlotStore:
    """With room for the largest group, and some bytes more."""
    return SlotStore(CpuStore(host), NeverDevice(), wandering, host.spare() + room, LeastRecent())


def grads(host: HostStore, group: str, value: float) -> dict[str, torch.Tensor]:
    return {name: torch.full_like(tensor, value) for name, tensor in host.current(group).items()}


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.sampled_from(("step", "read", "ahead", "flush", "pin")), st.sampled_from(GROUPS)), max_size=24
    ),
    st.sampled_from((0, 1024, 1 << 20)),
    st.sampled_from(("strict", "delayed:2", "frozen")),
    st.sets(st.sampled_from(GROUPS)),
)
def test_whatever_is_done_the_bits_are_the_same(
    done: list[tuple[str, str]], room: int, shared: str, wandering: set[str]
) -> None:
    mine, plain = filled(store(shared)), filled(store(shared))
    few, all_stay = slots(mine, room, frozenset(wandering)), CpuStore(plain)
    versions = dict.fromkeys(GROUPS, -1)
    for number, (what, group) in enumerate(done):
        now = versions[group]
        match what:
            case "step" if group not in mine.frozen:
                versions[group] += 1
                few.step(group, grads(mine, group, number), 0.1, now + 1)
                all_stay.step(group, grads(plain, group, number), 0.1, now + 1)
            case "ahead":
                few.ahead(group, now)
            case "flush":
                few.flush()
                assert mine.versions() == plain.versions()
            case _:
                few.bring(group, now)
                found = few.acquire(group, now)
                for name, tensor in all_stay.acquire(group, now).items():
                    assert torch.equal(found[name], tensor) and found[name].requires_grad == tensor.requires_grad
                assert few.seen(group, now) == now
        assert few.holds(group, versions[group]) and few.version(group) == versions[group]
        assert few.cache.used <= few.cache.budget
    few.flush()
    assert mine.versions() == plain.versions()
    for left, right in ((mine.weights(), plain.weights()), (mine.optimizer_state(), plain.optimizer_state())):
        assert left.keys() == right.keys()
        assert all(torch.equal(left[name], right[name]) for name in left)


def has_state(made: SlotStore) -> set[str]:
    """Groups whose optimizer state has memory there."""
    return {group for (group, _), slot in made.slots.items() if slot.state is not None}


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.sampled_from(("step", "read", "ahead", "flush")), st.sampled_from(GROUPS), st.booleans()),
        max_size=24,
    ),
    st.sampled_from((0, 1024, 1 << 20)),
)  # fmt: skip
def test_optimizer_state_stays_with_the_worker_that_alone_steps(done: list[tuple[str, str, bool]], room: int) -> None:
    """Two workers read all groups, and each steps its own: who leaves, or a cut, brings the state to the host."""
    mine, plain = filled(store()), filled(store())
    own, all_stay = (frozenset(GROUPS[:1]), frozenset(GROUPS[1:])), CpuStore(plain)
    both = [
        SlotStore(
            CpuStore(mine), NeverDevice(), frozenset(GROUPS), mine.spare() + room, LeastRecent(),
            Stepped(own[rank], own[1 - rank]),
        )
        for rank in range(2)
    ]  # fmt: skip
    versions = dict.fromkeys(GROUPS, -1)
    for number, (what, group, second) in enumerate(done):
        now, worker = versions[group], both[second]
        match what:
            case "step":
                versions[group] += 1
                stepper = both[group in own[1]]
                stepper.step(group, grads(mine, group, number), 0.1, now + 1)
                all_stay.step(group, grads(plain, group, number), 0.1, now + 1)
                stepper.leaving.settle(group)
                assert all(
                    (slot.state is None) == (g in own[1 - i])
                    for i in range(2)
                    for (g, _), slot in both[i].slots.items()
                    if mine.state.get(g)
                )
            case "flush":
                for one in both:
                    one.flush()
                assert mine.versions() == plain.versions()
                left, right = mine.optimizer_state(), plain.optimizer_state()
                assert all(torch.equal(left[name], right[name]) for name in right)
            case "ahead":
                worker.ahead(group, now)
            case _:
                worker.bring(group, now)
                found = worker.acquire(group, now)
                for name, tensor in all_stay.acquire(group, now).items():
                    assert torch.equal(found[name], tensor) and found[name].requires_grad == tensor.requires_grad
                assert worker.seen(group, now) == now
    for one in both:
        one.flush()
    for left, right in ((mine.weights(), plain.weights()), (mine.optimizer_state(), plain.optimizer_state())):
        assert left.keys() == right.keys()
        assert all(torch.equal(left[name], right[name]) for name in left)


def test_a_version_is_published_when_its_bytes_are_there() -> None:
    host = filled(store())
    mine = slots(host, wandering=frozenset(["a"]))
    rung: list[str] = []
    mine.announce(rung.append)
    before = host.home("a.weight").clone()
    mine.step("a", grads(host, "a", 1.0), 0.1, 0)
    mine.poll()
    assert mine.expecting() and host.version("a") == -1 and not rung
    assert torch.equal(host.home("a.weight"), before) and mine.holds("a", 0)
    mine.leaving.settle("a")
    assert host.version("a") == 0 and rung == ["a"] and not mine.expecting()
    assert not torch.equal(host.home("a.weight"), before)
    mine.step("a", grads(host, "a", 1.0), 0.1, 1)
    mine.step("a", grads(host, "a", 1.0), 0.1, 2)
    assert host.version("a") == 1, "the next step waits until the one before has been brought to the host"


def test_who_leaves_dirty_comes_back_as_it_left() -> None:
    """While it is on its way to the host."""
    host = filled(store())
    mine = slots(host)
    mine.step("a", grads(host, "a", 1.0), 0.1, 0)
    stepped = mine.acquire("a", 0)["a.weight"].detach().clone()
    mine.acquire("norm", -1)
    assert not mine.here("a") and mine.expecting()
    assert torch.equal(mine.acquire("a", 0)["a.weight"], stepped) and mine.seen("a", 0) == 0


def test_pinned_groups_stay() -> None:
    mine = slots(filled(store()))
    mine.bring("a", -1)
    mine.pin("a", 0)
    with pytest.raises(AssertionError, match=r"no room for norm: .* are pinned"):
        mine.acquire("norm", -1)
    assert not mine.ahead("norm", -1)
    mine.unpin(["a"], 0)
    assert mine.ahead("norm", -1) and not mine.here("a")
    assert (mine.residents.tally.fetches, mine.residents.tally.ahead, mine.residents.tally.right) == (2, 1, 0)
    mine.bring("norm", -1)
    assert mine.residents.tally.right == 1
