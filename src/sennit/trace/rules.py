"""What the checker is told, and what it answers with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sennit.errors import UserError


@dataclass(frozen=True)
class Rules:
    """What the checker must be told.

    Attributes:
        micro_batches: M.
        shared: policy for always-shared groups: `strict`, `delayed:K` or `frozen`.
        always: names of the always-shared groups, those of buffers (`...#buffers`) too.
        bulk: subnets that read one version and step together; 1 for causal order.
        asp: under asynchronous order, whether a backward sees the weights of its forward (stash) or not (none).
        first: seq id at which the log starts; what was written before it is not in the log.
        end: number of finished subnets; later ones may be incomplete. None: all in the log have finished.
    """

    micro_batches: int
    shared: str = "strict"
    always: frozenset[str] = frozenset()
    bulk: int = 1
    asp: Literal["stash", "none"] | None = None
    first: int = 0
    end: int | None = None

    @staticmethod
    def of_run(run: Mapping[str, Any], end: int | None = None) -> Rules:
        """The rules of a run.

        Args:
            run: what `run.json` holds.
            end: as the attribute.
        """
        recipe, sync = run["recipe"], str(run["recipe"].get("sync", "csp"))
        always = frozenset(run["always_shared"]) | frozenset(run["always_shared_buffers"])
        kind, _, detail = sync.partition(":")
        size = int(detail) if kind == "bulk" else run["placement"]["workers"] if sync == "bulk-per-worker" else 1
        asp = detail if kind == "asp" else None
        return Rules(recipe["micro_batches"], recipe["shared"], always, size, asp, end=end)  # type: ignore[arg-type]

    @property
    def lag(self) -> int | None:
        """K of `delayed:K`, else None.

        Raises:
            UserError: a policy that does not exist.
        """
        kind, _, number = self.shared.partition(":")
        if kind == "delayed" and number.isdecimal() and int(number) >= 2:
            return int(number)
        if self.shared not in ("strict", "frozen"):
            raise UserError(f"shared must be strict, delayed:K with K >= 2, or frozen, got {self.shared!r}")
        return None


@dataclass(frozen=True)
class Violation:
    """One thing that must not be.

    Attributes:
        rule: "line", "read", "write", "pair", "order" or "gap".
        group, seq: what and which subnet.
        message: for people.
    """

    rule: str
    group: str
    seq: int
    message: str

    def __str__(self) -> str:
        return self.message
