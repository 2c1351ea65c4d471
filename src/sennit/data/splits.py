"""Train, valid and test: fixed for good, and independent of the version of any library.

Sets that come with a split keep it. The others are put in an order by the keys of their samples, not by a
library's generator, whose stream may change with its version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TypeVar

from sennit.errors import UserError
from sennit.supernet.keys import key_for

SPLITS = ("train", "valid", "test")

Part = TypeVar("Part")


def keyed_order(n: int, name: str) -> list[int]:
    """`0 .. n-1` in the order of the keys that the data set called `name` gives them."""
    return sorted(range(n), key=lambda i: key_for(0, name, i))


def cut(order: Sequence[int], test: int, valid: int) -> dict[str, list[int]]:
    """The first `test` samples of an order, the next `valid`, and the rest for training."""
    return {
        "test": list(order[:test]),
        "valid": list(order[test : test + valid]),
        "train": list(order[test + valid :]),
    }


def split_of(source: str) -> str:
    """The split of a sentence pair, by its source alone: a source never stands in two splits.

    SHA-256 of the UTF-8 source as an integer, modulo 100: 0-4 valid, 5-9 test, else train.
    """
    bucket = int.from_bytes(hashlib.sha256(source.encode()).digest(), "big") % 100
    return "valid" if bucket < 5 else "test" if bucket < 10 else "train"


def chosen(split: str) -> tuple[str, ...]:
    """The names in `split`: one of `SPLITS`, or several joined by `+` ("train+valid", to retrain a network).

    Raises:
        UserError: a name that is none of `SPLITS`, or one that comes twice.
    """
    names = tuple(split.split("+")) if isinstance(split, str) else ()
    if not names or not set(names) <= set(SPLITS) or len(set(names)) != len(names):
        raise UserError(f"split must be one of {', '.join(SPLITS)}, or several joined by '+', got {split!r}")
    return names


def joined(parts: Mapping[str, Sequence[int]], split: str, limit: int | None = None) -> list[int]:
    """Indices of `split`, at most `limit` of them (the first ones).

    Raises:
        UserError: an unknown split, or a limit below 1.
    """
    indices = [i for name in chosen(split) for i in parts[name]]
    return limited(indices, limit)


def limited(items: list[Part], limit: int | None) -> list[Part]:
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise UserError(f"data_args limit must be a number of samples >= 1, or left out, got {limit!r}")
    return items[:limit]
