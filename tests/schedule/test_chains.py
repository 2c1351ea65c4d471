"""Longest chains through the subnets in flight, and the order that goes by them."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sennit.schedule.chain_order import ChainOrder
from sennit.schedule.chains import LATER, Chains, Link
from sennit.schedule.order import Task
from sennit.simulate.space_load import SpaceLoad
from sennit.simulate.space_run import SpaceRun

Stream = list[list[Link]]


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Up to 5 subnets of up to 4 runs; each group's reader names the last writer."""
    last: dict[str, int] = {}
    stream: Stream = []
    cost = st.integers(1, 9).map(float)
    for y in range(draw(st.integers(1, 5))):
        links: list[Link] = []
        for r in range(draw(st.integers(1, 4))):
            groups = sorted(draw(st.sets(st.sampled_from([f"{r}.a", f"{r}.b"]), max_size=2)))
            reads = [last.get(group, -1) for group in groups]
            f, b = draw(cost), draw(cost)
            links.append(Link(f, b, draw(cost), f + draw(cost), b + draw(cost), groups, reads))
        last |= {group: y for link in links for group in link.groups}
        stream.append(links)
    return stream


def wanted(stream: Stream, m: int, workers: int, y: int) -> float:
    """When the end of a subnet is due."""
    return LATER * sum(m * (k.forward + k.backward + k.weight) / workers for links in stream[: y + 1] for k in links)


def longest(stream: Stream, m: int, workers: int, kind: str, y: int, r: int) -> float:
    """By the definition: a task and the way from it to an end that is the most late, no matter how long that takes to
    find."""
    link = stream[y][r]
    if kind == "F":
        following = ("F", y, r + 1) if r + 1 < len(stream[y]) else ("B", y, r)
        return link.forward + longest(stream, m, workers, *following)
    if kind == "B":
        ways = [longest(stream, m, workers, "W", y, r)] + ([longest(stream, m, workers, "B", y, r - 1)] if r else [])
        return link.backward + max(ways)
    readers = [
        (z, s)
        for z, links in enumerate(stream)
        for s, reader in enumerate(links)
        for group, version in zip(reader.groups, reader.reads, strict=True)
        if version == y and group in link.groups
    ]
    ways = [(m - 1) * stream[z][s].forward_stretch + longest(stream, m, workers, "F", z, s) for z, s in readers]
    return link.weight + max([-wanted(stream, m, workers, y), *ways])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(streams(), st.integers(1, 3), st.integers(1, 4))
def test_chains_are_the_longest_ways(stream: Stream, m: int, workers: int) -> None:
    chains = Chains(m, workers)
    for y, links in enumerate(stream):
        chains.admit(y, links)
        for x in range(y + 1):
            held = chains.held[x]
            for r in range(len(stream[x])):
                known = stream[: y + 1]
                assert held.forward[r] == pytest.approx(longest(known, m, workers, "F", x, r))
                assert held.backward[r] == pytest.approx(longest(known, m, workers, "B", x, r))
                assert held.weight[r] == pytest.approx(longest(known, m, workers, "W", x, r))


def test_only_subnets_in_flight_are_kept() -> None:
    chains = Chains(1, 1)
    for y in range(100):
        chains.admit(y, [Link(1.0, 1.0, 1.0, 1.0, 1.0, ["a"], [y - 1])])
        chains.forget(y - 2)
    assert sorted(chains.held) == [97, 98, 99]


def link(group: str, version: int) -> Link:
    return Link(1.0, 1.0, 1.0, 1.0, 1.0, [group], [version])


def test_a_weight_gradient_goes_first_if_more_waits_for_it() -> None:
    """Subnets 1 and 2 wait for `a` of subnet 0, one after the other; nothing waits for `b` of subnet 3."""
    chains = Chains(1, 1)
    chains.admit(0, [link("a", -1)])
    chains.admit(3, [link("b", -1)])
    order = ChainOrder(chains)
    for task in [Task("W", 0, 0, 0), Task("F", 3, 0, 0)]:
        order.add(task)
    assert order.pop() == Task("F", 3, 0, 0)  # 3 tasks against 1: nobody waits for `a` yet
    order.add(Task("F", 3, 0, 0))
    chains.admit(1, [link("a", 0)])
    chains.admit(2, [link("a", 1)])
    assert order.pop() == Task("W", 0, 0, 0)
    order.add(Task("B", 3, 0, 0))
    assert [order.pop() for _ in range(3)] == [Task("B", 3, 0, 0), Task("F", 3, 0, 0), None]


def test_micro_batches_go_one_after_the_other_through_a_stretch() -> None:
    """Two layers in a row on a worker: 0 goes through both, then 1; by chains alone both would take the first layer."""
    chains = Chains(2, 1)
    two = [Link(1.0, 1.0, 1.0, 2.0, 2.0, [str(r)], [-1]) for r in range(2)]
    chains.admit(0, two)
    order = ChainOrder(chains)
    order.add(Task("F", 0, 0, 0))
    order.add(Task("F", 0, 1, 0))
    assert order.pop() == Task("F", 0, 0, 0)
    order.add(Task("F", 0, 0, 1))
    assert [order.pop(), order.pop()] == [Task("F", 0, 0, 1), Task("F", 0, 1, 0)]


@pytest.mark.parametrize("in_flight", [4, 8, 32])
@pytest.mark.parametrize("release", ["layer", "stage"])
def test_old_subnets_are_not_left_behind_where_few_share(release: Literal["layer", "stage"], in_flight: int) -> None:
    """With fair sampling hardly anybody waits for a version, and every new subnet has the longest way before it. By
    chains alone a third of the time would be waited."""
    space = SpaceLoad(
        blocks=24, candidates=48, workers=4, micro_batches=4, subnets_wanted=48, sampler="fair", release=release
    )
    assert SpaceRun(space=space, in_flight=in_flight).simulate().bubble < 0.08
