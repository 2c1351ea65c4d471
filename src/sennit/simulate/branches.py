"""`Branches`: which runs of a subnet wait for which, where they are no chain.

    0 ──▶ 2 ──▶ 3          encoder 0, embedding of the target 1, decoder 2, head 3: 1 waits for nobody
    1 ────┘

A forward waits for all runs whose output it reads; a backward for the gradients from all runs that read its output.
"""

from __future__ import annotations

from collections.abc import Sequence

from sennit.schedule.order import Task
from sennit.simulate.load import Piece


class Branches:
    """Of one subnet.

    Args:
        pieces: every one but the last is read by another; the loss follows the last.
        micro_batches: M.
    """

    def __init__(self, pieces: Sequence[Piece], micro_batches: int) -> None:
        n = len(pieces)
        self.sources = [
            piece.sources if piece.sources is not None else (r - 1,) * (r > 0) for r, piece in enumerate(pieces)
        ]
        self.readers: list[list[int]] = [[] for _ in range(n)]
        for r, sources in enumerate(self.sources):
            assert all(0 <= source < r for source in sources), f"run {r} reads what comes later: {sources}"
            for source in sources:
                self.readers[source].append(r)
        assert all(self.readers[:-1]), "a run that nobody reads would wait for its gradient for ever"
        self.first = [r for r in range(n) if not self.sources[r]]
        self.values = [[max(1, len(sources))] * micro_batches for sources in self.sources]
        self.gradients = [[len(readers)] * micro_batches for readers in self.readers]

    def waits(self, task: Task) -> bool:
        """One value or gradient more is there for a task; whether it waits for others."""
        missing = (self.values if task.kind == "F" else self.gradients)[task.run]
        missing[task.micro_batch] -= 1
        return missing[task.micro_batch] > 0
