"""What a search has found, from the object it returns or from its folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sennit.errors import CheckpointError, UserError
from sennit.explore.history import History, Trial
from sennit.explore.metrics import Mode, Objective
from sennit.strict import check_known

LOG = "search.jsonl"
"""Name of the log in a search folder."""


@dataclass
class _Identity:
    objective: Objective


@dataclass
class _First:
    """The first line of a log."""

    search: _Identity


@dataclass(frozen=True)
class SearchResult:
    """What a search has found.

    Attributes:
        trials: all results, in order.
        objective: what was improved.
        stopped: "budget", or "exhausted" if the space has no further network within the constraints.
        folder: where the log is.
    """

    trials: list[Trial]
    objective: Objective
    stopped: str
    folder: Path

    @property
    def best(self) -> Trial:
        """`.arch`, `.metrics` and `.number` of the best network."""
        return History(self.objective, self.trials).best

    def top(self, k: int) -> list[Trial]:
        """The k best, best first."""
        return History(self.objective, self.trials).top(k)

    def pareto(self, modes: dict[str, Mode]) -> list[Trial]:
        """The trials that no other one beats in all of these metrics at once.

        Args:
            modes: metric to direction, as {"accuracy": "max", "flops": "min"}.
        """
        goals = [Objective(name, mode) for name, mode in modes.items()]
        points = [(t, tuple(goal.rank(t.metrics) for goal in goals)) for t in self.trials]
        return [t for t, p in points if not any(q != p and all(map(float.__le__, q, p)) for _, q in points)]


def read_search(folder: str | Path) -> tuple[SearchResult, dict[str, Any]]:
    """Results so far and identity of a search folder, without touching it: for reports, also while it runs.

    Raises:
        UserError: no search there.
        CheckpointError: a line is none of a search; names it.
    """
    path = Path(folder) / LOG
    try:
        entries = list(_whole_lines(path.read_bytes()))
    except OSError as error:
        raise UserError(f"there is no search in {folder}: {error.strerror}") from error
    if not entries or "search" not in entries[0]:
        raise UserError(f"{path} does not begin as the log of a search does")
    for number, entry in enumerate(entries, 1):
        try:
            check_known(_First if number == 1 else Trial, entry)
        except ValueError as error:
            raise CheckpointError(
                f"{path}, line {number} is damaged: {error}; cut the file before it, or remove the folder"
            ) from error
    identity = entries[0]["search"]
    trials = [Trial(e["number"], e["arch"], e["metrics"]) for e in entries[1:]]
    return SearchResult(trials, Objective(**identity["objective"]), "unknown", Path(folder)), identity


def _whole_lines(content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.split(b"\n")[:-1]:
        try:
            entry = json.loads(line)
        except ValueError:
            return
        yield entry if isinstance(entry, dict) else {}
