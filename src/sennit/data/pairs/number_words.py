"""`pairs`: sums in words, English to German. A small translation that runs anywhere and can be learnt in
minutes.

    three hundred forty two plus one  ->  drei hundert zwei und vierzig plus eins

It needs what translation needs: units move before tens, "one" is "eins" or "ein" by what follows, and lengths
differ.
"""

from __future__ import annotations

from collections.abc import Sequence

from sennit.data.pairs.decode import FIRST, UNK
from sennit.data.pairs.pair_set import PairSet
from sennit.data.splits import chosen, limited, split_of
from sennit.data.store import sha256
from sennit.errors import UserError
from sennit.supernet.keys import below, key_for

ENGLISH = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
ENGLISH_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
GERMAN = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn "
    "sechzehn siebzehn achtzehn neunzehn"
).split()
GERMAN_TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
SIGNS = {"plus": "plus", "minus": "minus", "times": "mal"}

WORDS = sorted(
    {*ENGLISH, *ENGLISH_TENS, "hundred", "thousand", *SIGNS}
    | {*GERMAN, *GERMAN_TENS, "ein", "und", "hundert", "tausend", *SIGNS.values()}
)
"""Both languages; word i has token number `FIRST` + i."""

VOCAB = 80
"""Default of the space's `vocab` for this set: the words and the special tokens, and a few to spare."""

LENGTHS = (8, 12, 16, 24)


def english(n: int) -> list[str]:
    """0 <= n < 10,000 in words."""
    if n >= 1000:
        return [*english(n // 1000), "thousand", *(english(n % 1000) if n % 1000 else [])]
    if n >= 100:
        return [ENGLISH[n // 100], "hundred", *(english(n % 100) if n % 100 else [])]
    if n >= 20:
        return [ENGLISH_TENS[n // 10 - 2], *([ENGLISH[n % 10]] if n % 10 else [])]
    return [ENGLISH[n]]


def german(n: int) -> list[str]:
    """0 <= n < 10,000 in words, compounds taken apart; "eins" only at the end."""
    if n >= 1000:
        return [*_before(n // 1000), "tausend", *(german(n % 1000) if n % 1000 else [])]
    if n >= 100:
        return [*_before(n // 100), "hundert", *(german(n % 100) if n % 100 else [])]
    if n >= 20:
        return [*([*_before(n % 10), "und"] if n % 10 else []), GERMAN_TENS[n // 10 - 2]]
    return [GERMAN[n]]


def _before(n: int) -> list[str]:
    return ["ein"] if n == 1 else german(n)


def sentence(i: int) -> tuple[str, str]:
    """The i-th pair: one to three numbers of one to four digits, joined by signs."""

    def draw(n: int, *parts: int) -> int:
        return below(key_for(0, "number words", i, *parts), n)

    source: list[str] = []
    target: list[str] = []
    for k in range(1 + draw(3, 0)):
        if k:
            sign = list(SIGNS)[draw(len(SIGNS), 1, k)]
            source.append(sign)
            target.append(SIGNS[sign])
        number = draw(10 ** (1 + draw(4, 2, k)), 3, k)
        source += english(number)
        target += german(number)
    return " ".join(source), " ".join(target)


def number_pairs(
    split: str = "train",
    *,
    count: int = 6000,
    vocab: int = VOCAB,
    lengths: Sequence[int] = LENGTHS,
    rows_multiple: int = 1,
    score_samples: int = 200,
    limit: int | None = None,
) -> PairSet:
    """Sums in words; nine tenths for training, the rest valid and test, by hash of the source.

    Args:
        split: "train", "valid", "test", or several joined by "+".
        count: pairs drawn in all, before duplicates are left out.
        vocab: the space's `vocab`, at least the number of words.
        lengths, rows_multiple: see `Buckets`.
        score_samples: how many sentences BLEU is computed from.
        limit: only the first so many pairs of the split.

    Raises:
        UserError: an argument that is out of range.
    """
    names = chosen(split)
    if not isinstance(count, int) or count < 100:
        raise UserError(f"data_args count must be a number of pairs >= 100, got {count!r}")
    if not isinstance(vocab, int) or vocab < FIRST + len(WORDS):
        raise UserError(f"data_args vocab must be at least {FIRST + len(WORDS)}, the tokens of 'pairs', got {vocab!r}")
    drawn = dict(sentence(i) for i in range(count))
    rows = limited([pair for name in names for pair in drawn.items() if split_of(pair[0]) == name], limit)
    number = {word: FIRST + i for i, word in enumerate(WORDS)}
    return PairSet(
        [[number[word] for word in source.split()] for source, _ in rows],
        [[number[word] for word in target.split()] for _, target in rows],
        [target for _, target in rows],
        _text,
        lengths=lengths,
        rows_multiple=rows_multiple,
        score_samples=score_samples,
        sha256=sha256("\n".join(f"{s}\t{t}" for s, t in drawn.items()).encode()),
    )


def _text(tokens: list[int]) -> str:
    return " ".join(WORDS[t - FIRST] if UNK < t < FIRST + len(WORDS) else "?" for t in tokens)
