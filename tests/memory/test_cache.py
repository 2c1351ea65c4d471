"""Bytes, pins and who leaves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sennit.memory.cache import Cache
from sennit.memory.eviction import Key, LatestNextUse, LeastRecent
from sennit.memory.upcoming import Upcoming

A, B, C, D = (("a", 0), ("b", 0), ("c", 0), ("d", 0))


def filled(eviction: LeastRecent, budget: int = 3) -> Cache:
    cache = Cache(budget, eviction)
    for key in (A, B, C):
        cache.add(key, 1)
    return cache


def test_the_least_recently_used_leaves() -> None:
    cache = filled(LeastRecent())
    cache.pin(A, 0)
    cache.unpin(A, 0)
    assert cache.leaving(1) == [B] and cache.leaving(2) == [B, C] and cache.leaving(4) is None


def test_what_is_used_latest_leaves() -> None:
    upcoming = Upcoming()
    upcoming.admit(7, {2: [A, B], 5: [C]})
    upcoming.admit(8, {2: [A]})
    cache = filled(LatestNextUse(upcoming.next_use))
    assert cache.leaving(1) == [C]
    upcoming.begun(7, 2)
    assert cache.leaving(3) == [B, A, C]  # b is used no more, a by subnet 8
    assert cache.eviction.sooner(C, A) and not cache.eviction.sooner(A, C)
    assert [use for use, _ in upcoming.coming()] == [(7, 5), (8, 2)]


def test_what_is_drawn_stays_but_is_not_fetched_ahead() -> None:
    upcoming = Upcoming()
    upcoming.foretell(3, [A, D])
    upcoming.foretell(4, [B, D])
    upcoming.admit(2, {0: [C]})
    cache = filled(LatestNextUse(upcoming.next_use))
    assert cache.leaving(3) == [B, A, C]
    assert [use for use, _ in upcoming.coming()] == [(2, 0)]
    upcoming.admit(3, {1: [A], 2: [D]})
    assert [use for use, _ in upcoming.coming()] == [(2, 0), (3, 1), (3, 2)]
    for use in ((2, 0), (3, 1), (3, 2)):
        upcoming.begun(*use)
    assert cache.leaving(3) == [A, C, B] and upcoming.next_use(D) == upcoming.next_use(B) < upcoming.next_use(A)
    upcoming.admit(4, {0: []})
    assert not upcoming.of and not upcoming.drawn


def test_what_a_live_graph_uses_stays() -> None:
    cache = filled(LeastRecent())
    cache.pin(A, 0)
    cache.pin(A, 0)
    cache.pin(B, 1)
    assert cache.leaving(1) == [C] and cache.leaving(2) is None
    cache.unpin(A, 0)
    assert cache.leaving(2) is None
    cache.unpin(A, 0)
    assert cache.leaving(2) == [C, A]
    with pytest.raises(AssertionError, match=r"pinned by \[1\]"):
        cache.drop(B)


def test_young_subnets_leave_room_for_the_oldest() -> None:
    cache = Cache(5, LeastRecent())
    cache.expect(2)
    assert cache.may_pin(1, {A: 1, B: 1}, 0)
    for key in (A, B):
        cache.add(key, 1)
        cache.pin(key, 1)
    assert not cache.may_pin(2, {C: 1, D: 1}, 0)
    assert cache.may_pin(2, {C: 1}, 0) and cache.may_pin(2, {A: 1, B: 1}, 0)
    assert cache.may_pin(0, {C: 1, D: 1}, 0)
    assert cache.may_pin(2, {C: 1, D: 1}, 1), "what the oldest has pinned is in its room"


def test_a_list_counts_what_is_pinned_now() -> None:
    cache = Cache(4, LeastRecent())
    cache.expect(4)
    for key in (A, B):
        cache.add(key, 1)
        cache.pin(key, 1)
    assert cache.fits({B: 1, C: 1}, spare=1) and not cache.fits({C: 1, D: 1}, spare=1)
    cache.unpin(A, 1)
    assert cache.fits({C: 1, D: 1}, spare=1)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data())
def test_the_oldest_can_always_go_on(data: st.DataObject) -> None:
    """Any subnets, in any order that `may_pin` allows: whoever is the oldest finds room, so all come to their end."""
    shares: list[dict[Key, int]] = [
        {(f"g{g}", 0): g % 3 + 1 for g in data.draw(st.sets(st.integers(0, 8), min_size=1, max_size=4))}
        for _ in range(data.draw(st.integers(1, 6)))
    ]
    most = max(sum(share.values()) for share in shares)
    cache = Cache(most + data.draw(st.integers(0, 4)), LeastRecent())
    for share in shares:
        cache.expect(sum(share.values()))
    left = {y: sorted(share) for y, share in enumerate(shares)}
    held: dict[int, list[Key]] = {y: [] for y in left}
    while left:
        lowest = min(left)
        able = [
            y for y, keys in left.items()
            if keys and cache.may_pin(y, {keys[0]: shares[y][keys[0]]}, lowest)
        ]  # fmt: skip
        assert not left[lowest] or lowest in able
        if not left[lowest]:
            for key in held[lowest]:
                cache.unpin(key, lowest)
            del left[lowest]
            continue
        y = data.draw(st.sampled_from(able))
        key = left[y].pop(0)
        if key not in cache.entries:
            gone = cache.leaving(shares[y][key])
            assert gone is not None, "the oldest found no room"
            for other in gone:
                cache.drop(other)
            cache.add(key, shares[y][key])
        cache.pin(key, y)
        held[y].append(key)
