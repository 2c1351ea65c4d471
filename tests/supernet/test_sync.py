"""`CspSync`: which version is read, whose gradient is applied."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sennit.errors import RecipeError
from sennit.supernet.sync import CspSync, Shared

GROUPS = ("always", "a", "b", "c")
subnets = st.lists(st.sets(st.sampled_from("abc")), min_size=1, max_size=25)


def replay(sets: list[set[str]], text: str) -> None:
    """Run the stream with dictionaries of applied gradients, and compare every answer with them."""
    shared = Shared.parse(text)
    sync = CspSync({"always"}, shared)
    applied: dict[str, list[int]] = {g: [] for g in GROUPS}
    for y, chosen in enumerate(sets):
        used = ["always", *sorted(chosen)]
        sync.observe(y, used)
        for group in used:
            version = max(applied[group], default=-1)
            assert sync.reads(group, y) == version
            if group == "always" and shared.kind != "strict":
                lag = shared.lag if shared.kind == "delayed" else None
                assert applied[group] == ([] if lag is None else list(range(y - lag + 1)))
            elif group == "always":
                assert applied[group] == list(range(y))
        for group in used:
            applied[group] += sync.applies(group, y)
        sync.forget(y)
    for group in "abc":
        assert applied[group] == [y for y, chosen in enumerate(sets) if group in chosen]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(subnets, st.sampled_from(["strict", "frozen", "delayed:2", "delayed:3", "delayed:7"]))
def test_answers_agree_with_a_list_of_applied_gradients(sets: list[set[str]], text: str) -> None:
    replay(sets, text)


def test_answers_do_not_depend_on_when_they_are_asked() -> None:
    sync = CspSync((), Shared.parse("strict"))
    for y, groups in enumerate(("ab", "a", "b", "ab")):
        sync.observe(y, groups)
    assert [sync.reads("a", y) for y in (0, 1, 3)] == [-1, 0, 1]
    assert [sync.reads("b", y) for y in (0, 2, 3)] == [-1, 0, 2]
    sync.forget(1)
    with pytest.raises(KeyError):
        sync.reads("a", 1)


def test_a_run_goes_on_from_stored_versions() -> None:
    sync = CspSync({"always"}, Shared.parse("delayed:3"))
    sync.start({"a": 7, "b": 4})
    sync.observe(10, ("always", "a", "c"))
    assert [sync.reads(g, 10) for g in ("always", "a", "c")] == [7, 7, -1]
    sync.observe(11, ("always", "a", "b"))
    assert [sync.reads(g, 11) for g in ("always", "a", "b")] == [8, 10, 4]
    assert sync.applies("always", 11) == (9,) and sync.applies("a", 11) == (11,)


def test_policies_are_parsed_strictly() -> None:
    assert Shared.parse("strict") == Shared("strict") and Shared.parse("frozen") == Shared("frozen")
    assert Shared.parse("delayed:2") == Shared("delayed", 2)
    for bad in ("", "delayed", "delayed:", "delayed:1", "delayed:-2", "delayed:2.0", "frozen:2", "Strict"):
        with pytest.raises(RecipeError, match=r"shared must be 'strict', 'delayed:K' with K >= 2, or 'frozen', got"):
            Shared.parse(bad)
