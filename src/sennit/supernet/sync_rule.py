"""`SyncRule`: the recipe's `sync`, parsed, and the `Sync` that it names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from sennit.errors import RecipeError
from sennit.supernet.bulk import AspSync, BulkSync
from sennit.supernet.sync import CspSync, Shared, Sync

LEGAL = "csp, bulk:K with K >= 1, bulk-per-worker, asp:stash, asp:2bw or asp:none"


@dataclass(frozen=True)
class SyncRule:
    """A synchronisation rule.

    Attributes:
        kind: csp: causal order. bulk: one step per bulk. asp: whatever is there.
        size: subnets per bulk; 0: as many as there are workers.
        behind: bulks between a step and its first reader (1 for 2BW).
        stash: asp: a backward uses the weights that its forward read.
    """

    kind: Literal["csp", "bulk", "asp"]
    size: int = 0
    behind: int = 0
    stash: bool = True

    @staticmethod
    def parse(text: str) -> SyncRule:
        """Read `csp`, `bulk:K`, `bulk-per-worker` or `asp:...`.

        Raises:
            RecipeError: none of them.
        """
        known = {
            "csp": SyncRule("csp"),
            "bulk-per-worker": SyncRule("bulk"),
            "asp:stash": SyncRule("asp"),
            "asp:none": SyncRule("asp", stash=False),
            "asp:2bw": SyncRule("bulk", behind=1),
        }
        if text in known:
            return known[text]
        kind, _, number = text.partition(":")
        if kind == "bulk" and number.isdecimal() and int(number) >= 1:
            return SyncRule("bulk", int(number))
        raise RecipeError(f"sync must be {LEGAL}, got {text!r}")

    @property
    def per_placement(self) -> bool:
        """Whether the number of workers is part of the result."""
        return self.kind == "asp" or (self.kind == "bulk" and not self.size)

    def bulk(self, workers: int) -> int:
        """Subnets between two steps."""
        return (self.size or workers) if self.kind == "bulk" else 1

    def make(self, always: Iterable[str], shared: Shared, workers: int) -> Sync:
        """The rule as an object. `shared` other than `strict` and `frozen` goes with csp alone."""
        if self.kind == "csp":
            return CspSync(always, shared)
        if self.kind == "bulk":
            return BulkSync(self.bulk(workers), always if shared.kind == "frozen" else (), self.behind)
        return AspSync()
