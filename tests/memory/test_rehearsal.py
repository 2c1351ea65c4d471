"""Policies on one record: what Belady's rule and the bound say of all others."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sennit.memory.eviction import Key
from sennit.memory.rehearsal import Moment, Rehearsal, What, first_begins, most_kept, uses

NAMES = "abcdef"
ONE: dict[Key, int] = {(name, 0): 1 for name in NAMES}
OTHERS: list[dict[str, Any]] = [
    {"evict": evict, "ahead": ahead, "known": known}
    for evict in ("lru", "next-use") for ahead in (0, 1, 3) for known in (0, 4)
]  # fmt: skip


def record(*said: str) -> list[Moment]:
    """`admit 0 ab`, `begin 0`, ...: a moment each; times count up."""
    keys: dict[int, tuple[Key, ...]] = {}
    found: list[Moment] = []
    for time, text in enumerate(said):
        what, seq_id, *letters = text.split()
        y = int(seq_id)
        if letters:
            keys[y] = tuple((letter, 0) for letter in letters[0])
        kind: What = what  # type: ignore[assignment]
        found.append(Moment(kind, float(time), (y, 0), keys[y]))
    return found


@st.composite
def records(draw: st.DrawFn, most: int = 12, in_flight: int = 3) -> list[Moment]:
    """Subnets of some layers each, let in in order; begun and ended as the draw wants."""
    shares = draw(st.lists(st.sets(st.sampled_from(NAMES), min_size=1, max_size=3), min_size=2, max_size=most))
    said: list[str] = []
    held: list[int] = []
    ready: list[int] = []
    left = list(range(len(shares)))
    while left or ready or held:
        can = {"admit": bool(left) and len(ready) + len(held) < in_flight, "begin": bool(ready), "end": bool(held)}
        match draw(st.sampled_from([what for what, may in can.items() if may])):
            case "admit":
                y = left.pop(0)
                said += [f"admit {y} {''.join(sorted(shares[y]))}", f"ready {y}"]
                ready.append(y)
            case "begin":
                y = ready.pop(draw(st.integers(0, len(ready) - 1)))
                said.append(f"begin {y}")
                held.append(y)
            case _:
                said.append(f"end {held.pop(draw(st.integers(0, len(held) - 1)))}")
    return record(*said)


def pinned_at_most(moments: list[Moment], sizes: dict[Key, int]) -> int:
    held: list[Key] = []
    most = 0
    for moment in moments:
        if moment.what == "begin":
            held += moment.keys
        if moment.what == "end":
            for key in moment.keys:
                held.remove(key)
        most = max(most, sum(sizes[key] for key in set(held)))
    return most


def fewest_fetches(moments: list[Moment], budget: int) -> int:
    """By trying everything that could leave; all of one size."""

    @cache
    def search(at: int, here: frozenset[Key], pins: tuple[Key, ...]) -> int:
        if at == len(moments):
            return 0
        moment = moments[at]
        if moment.what == "end":
            left = list(pins)
            for key in moment.keys:
                left.remove(key)
            return search(at + 1, here, tuple(left))
        if moment.what != "begin":
            return search(at + 1, here, pins)
        new = set(moment.keys) - here
        pins = tuple(sorted((*pins, *moment.keys)))
        loose = here - set(pins)
        kept = min(len(loose), budget - len(set(pins)))
        return len(new) + min(
            search(at + 1, frozenset(pins) | frozenset(stay), pins) for stay in combinations(sorted(loose), kept)
        )

    return search(0, frozenset(), ())


def after_each_other(*shares: str) -> list[str]:
    return [
        word for y, keys in enumerate(shares) for word in (f"admit {y} {keys}", f"ready {y}", f"begin {y}", f"end {y}")
    ]


def test_a_record_by_hand() -> None:
    """Room for two. LRU gives up a for c, and c for a again; who knows what comes gives up b."""
    moments = record(*after_each_other("a", "b", "c", "a"))
    lru = Rehearsal(moments, ONE, 2, "lru").run()
    known = Rehearsal(moments, ONE, 2, "next-use", known=4).run()
    oracle = Rehearsal(moments, ONE, 2, "oracle").run()
    assert (lru.fetches, known.fetches, oracle.fetches) == (4, 3, 3)
    assert (lru.reads, lru.hits, known.hits, lru.written_bytes) == (4, 0, 1, 2)
    assert uses(moments) - most_kept(moments, ONE, 2) == 3
    ahead = Rehearsal(moments, ONE, 2, "next-use", ahead=1, known=4).run()
    assert (ahead.hits, ahead.fetches, ahead.ahead, ahead.right) == (4, 3, 3, 3), "what is only drawn stays, and waits"
    slow = Rehearsal(moments, ONE, 2, "lru", bytes_per_s=0.5).run()
    assert slow.stall_s == 4 * 2.0 and slow.hits == 0


@settings(max_examples=300, deadline=None, derandomize=True)
@given(records(), st.integers(0, 3))
def test_where_all_are_of_one_size_nobody_fetches_less_than_belady(moments: list[Moment], more: int) -> None:
    budget = pinned_at_most(moments, ONE) + more
    oracle = Rehearsal(moments, ONE, budget, "oracle").run()
    for other in OTHERS:
        assert oracle.fetches <= Rehearsal(moments, ONE, budget, **other).run().fetches, other
    assert uses(moments) - oracle.fetches <= most_kept(moments, ONE, budget)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(records(most=6), st.integers(0, 2))
def test_belady_is_the_best_that_can_be_found(moments: list[Moment], more: int) -> None:
    budget = pinned_at_most(moments, ONE) + more
    assert Rehearsal(moments, ONE, budget, "oracle").run().fetches == fewest_fetches(moments, budget)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(records(), st.lists(st.integers(1, 5), min_size=6, max_size=6), st.integers(0, 6))
def test_nobody_keeps_more_than_the_bound(moments: list[Moment], weights: list[int], more: int) -> None:
    sizes: dict[Key, int] = {(name, 0): weight for name, weight in zip(NAMES, weights, strict=True)}
    budget = pinned_at_most(moments, sizes) + more
    bound = most_kept(moments, sizes, budget)
    assert bound <= uses(moments) - len({key for _, keys in first_begins(moments) for key in keys})
    for other in [*OTHERS, {"evict": "oracle"}, {"evict": "oracle", "ahead": 3}]:
        tally = Rehearsal(moments, sizes, budget, **other).run()
        assert uses(moments) - tally.fetches <= bound, other
        assert tally.right <= tally.ahead <= tally.fetches and tally.hits <= tally.reads


@settings(max_examples=50, deadline=None, derandomize=True)
@given(records())
def test_with_room_for_all_everything_is_fetched_once(moments: list[Moment]) -> None:
    for other in OTHERS:
        tally = Rehearsal(moments, ONE, len(ONE), **other).run()
        assert tally.fetches == len({key for _, keys in first_begins(moments) for key in keys})
        assert uses(moments) - tally.fetches == most_kept(moments, ONE, len(ONE)) and not tally.written_bytes
