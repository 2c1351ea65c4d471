"""Words of buffer groups are three numbers, stored one by one, which other processes read at any moment."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sennit.memory.store import HostStore

Word = tuple[int, int, int]


class Watched(list[int]):
    """Words that remember what stood there after every store."""

    seen: list[tuple[int, ...]]

    def __setitem__(self, place: Any, number: Any) -> None:
        super().__setitem__(place, number)
        self.seen.append(tuple(self))


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
def test_the_new_word_stands_with_the_last_store_and_never_before(words: list[Word]) -> None:
    """Else whoever waits for it goes on, stores the next word, and the rest of this one is stored over it."""
    held = Watched([-1, -1, -1])
    host = HostStore.__new__(HostStore)
    host.words = {"bn#buffers": [held]}  # type: ignore[dict-item]
    for at, word in enumerate(words):
        held.seen = []
        host.move("bn#buffers", word)
        assert held.seen[-1] == word
        for between in held.seen[:-1]:
            assert between not in words[at:], f"{between} on the way to {word}"
