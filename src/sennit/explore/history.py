"""What a search has found so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sennit.explore.archs import Draws
from sennit.explore.metrics import Objective
from sennit.supernet.keys import key_for


@dataclass(frozen=True)
class Trial:
    """One evaluated network.

    Attributes:
        number: its place in the search, from 0.
        arch: canonical.
        metrics: by name.
    """

    number: int
    arch: dict[str, Any]
    metrics: dict[str, float]


class History:
    """All results before a candidate, as a strategy sees them.

    Attributes:
        trials: in order.
        objective: what is better.
        attempt: how often the candidate that is asked for was already asked for and refused, because the arch
            was evaluated before or breaks a constraint.
    """

    def __init__(self, objective: Objective, trials: Sequence[Trial] = ()) -> None:
        self.objective = objective
        self.trials: list[Trial] = list(trials)
        self.attempt = 0

    @property
    def number(self) -> int:
        """Number of the candidate that is asked for."""
        return len(self.trials)

    @property
    def best(self) -> Trial:
        """The best so far; of equals the one with the lowest loss. There must be one."""
        return min(self.trials, key=self.rank)

    def rank(self, trial: Trial) -> tuple[float, float, int]:
        """Smaller is better. Equals are ordered by their loss, then the earlier one is better."""
        loss = trial.metrics.get("loss", 0.0)
        return self.objective.rank(trial.metrics), math.inf if math.isnan(loss) else loss, trial.number

    def top(self, k: int) -> list[Trial]:
        """The k best, best first."""
        return sorted(self.trials, key=self.rank)[:k]

    def draws(self, seed: int) -> Draws:
        """Random numbers for this candidate: a function of (seed, number, attempt)."""
        return Draws(key_for(seed, "search", self.number, self.attempt))
