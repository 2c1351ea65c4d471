"""`Window`: which subnets of a run are timed.

0 ── warm ──┬── sample ──┬──── timed ────┬─ tail ─┤ steps
captures,   │ what tasks │ milliseconds  │ the device's kernels are looked at (one GPU);
first use   │ take       │ per subnet    │ keeps the pipeline full to the end of `timed`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

PARTS = 4
"""Of the timed subnets; the spread is that of the means of these."""

GAP = 4
"""Subnets between the timed ones and those whose kernels are looked at: they may be under way already."""


@dataclass(frozen=True)
class Window:
    """Numbers of subnets, multiples of any bulk, or one would be cut."""

    warm: int
    sample: int
    timed: int
    tail: int = 16

    @property
    def steps(self) -> int:
        return self.end + self.tail

    @property
    def begin(self) -> int:
        """The first timed subnet."""
        return self.warm + self.sample

    @property
    def end(self) -> int:
        """Behind the last timed one."""
        return self.begin + self.timed

    @property
    def sampled(self) -> range:
        return range(self.warm, self.begin)

    @property
    def looked_at(self) -> range:
        """Subnets whose kernels are counted."""
        return range(self.end + GAP, self.steps - GAP)

    def rate(self, ends: Sequence[float]) -> tuple[float, list[float]]:
        """Milliseconds per subnet, and the means of the parts.

        Args:
            ends: of each subnet, when its loss was there, seconds. A subnet counts when all before it are there, too.
        """
        told = list(accumulate(ends, max))
        marks = [self.begin + self.timed * part // PARTS - 1 for part in range(PARTS + 1)]
        parts = [1e3 * (told[b] - told[a]) / (b - a) for a, b in pairwise(marks)]
        return 1e3 * (told[self.end - 1] - told[self.begin - 1]) / self.timed, parts
