"""What the checker is told, and what it answers with."""

from __future__ import annotations

from dataclasses import dataclass

from sennit.errors import UserError


@dataclass(frozen=True)
class Rules:
    """What the checker must be told.

    Attributes:
        micro_batches: M.
        shared: policy for always-shared groups: `strict`, `delayed:K` or `frozen`.
        always: names of the always-shared groups, those of buffers (`...#buffers`) too.
        first: seq id at which the log starts; what was written before it is not in the log.
        end: number of finished subnets; later ones may be incomplete. None: all in the log have finished.
    """

    micro_batches: int
    shared: str = "strict"
    always: frozenset[str] = frozenset()
    first: int = 0
    end: int | None = None

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
