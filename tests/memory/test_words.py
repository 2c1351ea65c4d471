"""Words of buffer groups are three numbers, stored one by one, which other processes read at any moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sennit.memory.store import HostStore

Word = tuple[int, int, int]


class Watched(list[int]):
    """Words that tell after every store what stands there."""

    told: Callable[[tuple[int, ...]], None]

    def __setitem__(self, place: Any, number: Any) -> None:
        super().__setitem__(place, number)
        self.told(tuple(self))


@st.composite
def words_in_order(draw: st.DrawFn) -> list[Word]:
    """Words in the order in which they must come: subnets with gaps, M micro-batches, several uses; a run of steps may
    move several uses at once and then stores the last of them."""
    m = draw(st.integers(1, 3))
    words: list[Word] = []
    y = -1
    for _ in range(draw(st.integers(1, 4))):
        y += draw(st.integers(1, 3))
        ends = sorted(draw(st.sets(st.integers(0, 3), min_size=1)))
        words += [(y, j, use) for j in range(m) for use in ends]
    return words


@settings(max_examples=200, deadline=None, derandomize=True)
@given(words_in_order())
def test_whoever_waits_for_a_word_may_store_the_next_one_at_once(words: list[Word]) -> None:
    """Processes are put off at any moment: as soon as a word stands, the next one is stored, by someone else, while the
    one who stores this word has not come back from its last store."""
    held = Watched([-1, -1, -1])
    host = HostStore.__new__(HostStore)
    host.words = {"bn#buffers": [held]}  # type: ignore[dict-item]
    stood: list[tuple[int, ...]] = []

    def told(now: tuple[int, ...]) -> None:
        if len(stood) < len(words) and now == words[len(stood)]:
            stood.append(now)
            if len(stood) < len(words):
                host.move("bn#buffers", words[len(stood)])
        else:
            assert now not in words[len(stood) :], f"{now} stands before its time"

    held.told = told
    host.move("bn#buffers", words[0])
    assert stood == words and tuple(held) == words[-1]
