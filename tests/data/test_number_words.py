"""`pairs`: numbers in words."""

from __future__ import annotations

import pytest

from sennit.data.pairs.number_words import VOCAB, WORDS, english, german, number_pairs, sentence
from sennit.errors import UserError


@pytest.mark.parametrize(
    ("n", "source", "target"),
    [
        (0, "zero", "null"),
        (1, "one", "eins"),
        (16, "sixteen", "sechzehn"),
        (30, "thirty", "dreißig"),
        (21, "twenty one", "ein und zwanzig"),
        (101, "one hundred one", "ein hundert eins"),
        (342, "three hundred forty two", "drei hundert zwei und vierzig"),
        (1001, "one thousand one", "ein tausend eins"),
        (9999, "nine thousand nine hundred ninety nine", "neun tausend neun hundert neun und neunzig"),
    ],
)
def test_words(n: int, source: str, target: str) -> None:
    assert " ".join(english(n)) == source
    assert " ".join(german(n)) == target


def test_words_tell_all_numbers_apart() -> None:
    assert len({" ".join(german(n)) for n in range(10_000)}) == 10_000
    assert len({" ".join(english(n)) for n in range(10_000)}) == 10_000


def test_sentences_are_fixed() -> None:
    assert sentence(0) == sentence(0)
    assert len({sentence(i) for i in range(100)}) > 80


def test_the_set_is_the_same_each_time_and_fits_the_vocabulary() -> None:
    data = number_pairs("train")
    assert data.sha256 == number_pairs("valid").sha256
    assert data.left_out == 0
    assert max(max(tokens) for tokens in data.sources + data.targets) < 4 + len(WORDS) <= VOCAB


def test_arguments_out_of_range_are_refused() -> None:
    with pytest.raises(UserError, match=f"vocab must be at least {4 + len(WORDS)}"):
        number_pairs(vocab=50)
    with pytest.raises(UserError, match="count"):
        number_pairs(count=5)
