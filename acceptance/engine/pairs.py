"""Pairwise covering sets: rows in which every value of a factor meets every value of every other factor."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Row = tuple[Any, ...]
Pair = tuple[int, int, Any, Any]


class Pairwise:
    """The rows over some factors; the same on every machine.

    Args:
        factors: name to values.
        void: of a row, factors that mean nothing in it, and which other factor makes it so: with one worker, a cut.
            Such a factor meets only that other one.
    """

    def __init__(
        self,
        factors: Mapping[str, Sequence[Any]],
        void: Callable[[dict[str, Any]], Mapping[str, str]] = lambda row: {},
    ) -> None:
        self.factors, self.names, self.void = dict(factors), list(factors), void

    def named(self, row: Row) -> dict[str, Any]:
        return dict(zip(self.names, row, strict=True))

    def pairs_of(self, row: Row) -> set[Pair]:
        """Pairs that a row covers."""
        void = {self.names.index(a): self.names.index(b) for a, b in self.void(self.named(row)).items()}
        return {
            (i, j, row[i], row[j])
            for i, j in itertools.combinations(range(len(row)), 2)
            if void.get(i, j) == j and void.get(j, i) == i
        }

    def all_pairs(self) -> set[Pair]:
        values = list(self.factors.values())
        return {
            (i, j, a, b) for i, j in itertools.combinations(range(len(values)), 2) for a in values[i] for b in values[j]
        }

    def missing(self, rows: Iterable[Row]) -> set[Pair]:
        """Pairs that no row covers."""
        return self.all_pairs() - set[Pair]().union(*map(self.pairs_of, rows))

    def least(self, rows: Iterable[Row]) -> int:
        """How often the rarest value occurs."""
        counts = Counter((i, value) for row in rows for i, value in enumerate(row))
        return min(counts[i, value] for i, name in enumerate(self.names) for value in self.factors[name])

    def covering(self) -> list[Row]:
        """The smallest of some greedy covering sets."""
        return min((self._greedy(seed) for seed in range(20)), key=len)

    def _greedy(self, seed: int) -> list[Row]:
        draw, rows = random.Random(seed), list[Row]()
        missing = self.all_pairs()
        while missing:
            best: tuple[int, Row] = (-1, ())
            for _ in range(30):
                i, j, a, b = draw.choice(sorted(missing, key=str))
                row: dict[int, Any] = {i: a, j: b}
                rest = [k for k in range(len(self.names)) if k not in row]
                draw.shuffle(rest)
                for k in rest:
                    values = list(self.factors[self.names[k]])
                    draw.shuffle(values)
                    row[k] = max(values, key=lambda v: sum(_pair(k, v, o, w) in missing for o, w in row.items()))
                whole = tuple(row[k] for k in range(len(self.names)))
                best = max(best, (len(self.pairs_of(whole) & missing), whole), key=lambda held: held[0])
            rows.append(best[1])
            missing -= self.pairs_of(best[1])
        return rows


def _pair(k: int, v: Any, o: int, w: Any) -> Pair:
    return (k, o, v, w) if k < o else (o, k, w, v)
