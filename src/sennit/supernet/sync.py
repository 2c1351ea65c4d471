"""`Sync`: which version of a group a subnet reads, and whose gradients a step adds (contract, rule 3).

One object answers both questions for the plain loop, the workers, the simulator and the checker's caller. A
version is the seq id of the last subnet whose gradient is included, -1 at first.

Causal synchronous parallel (NASPipe's CSP) on versions: subnet y reads group g as written by the latest x < y
that writes g. The paper's Algorithm 2 asks instead whether x has finished *at this stage*; with partitions that
differ between subnets that admits stale reads, because backward reaches the stage that held g for x later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from sennit.errors import RecipeError


class Sync(Protocol):
    """Versions and gradients per group. `observe` is called once per subnet, in order."""

    def start(self, versions: dict[str, int]) -> None:
        """Go on from stored versions: the newest of each group."""
        ...

    def observe(self, seq_id: int, groups: Iterable[str]) -> None:
        """Subnet `seq_id` reads and will write these groups."""
        ...

    def reads(self, group: str, seq_id: int) -> int:
        """The version that `seq_id` must read."""
        ...

    def applies(self, group: str, seq_id: int) -> tuple[int, ...]:
        """Subnets whose gradients the step of `seq_id` adds to `group`, in order."""
        ...

    def forget(self, seq_id: int) -> None:
        """`seq_id` has finished; nothing more will be asked about it."""
        ...


@dataclass(frozen=True)
class Shared:
    """Policy for always-shared groups: `strict`, `delayed:K` or `frozen`."""

    kind: Literal["strict", "delayed", "frozen"]
    lag: int = 1

    @staticmethod
    def parse(text: str) -> Shared:
        kind, _, number = text.partition(":")
        if text in ("strict", "frozen"):
            return Shared(text)  # type: ignore[arg-type]
        if kind == "delayed" and number.isdecimal() and int(number) >= 2:
            return Shared("delayed", int(number))
        raise RecipeError(f"shared must be 'strict', 'delayed:K' with K >= 2, or 'frozen', got {text!r}")


def delayed_words(cut: int, lag: int) -> list[int]:
    """Under `delayed:K`, of an always-shared group before subnet `cut`: its version, and the gradients that wait."""
    newest = max(cut - lag, -1)
    return [newest, *range(newest + 1, cut)]


class CspSync:
    """Causal order, with a policy for the groups that every subnet reads.

        strict      y reads what y-1 wrote
        delayed:K   y reads the version with exactly the gradients of subnets <= y-K; the step of z applies z-K+1
        frozen      always version -1; nothing is applied

    Args:
        always: names of the always-shared groups.
        shared: the policy for them.
    """

    def __init__(self, always: Iterable[str], shared: Shared) -> None:
        self.always = frozenset(always) if shared.kind != "strict" else frozenset[str]()
        self.shared = shared
        self.last: dict[str, int] = {}
        self.read: dict[int, dict[str, int]] = {}

    def start(self, versions: dict[str, int]) -> None:
        """Go on from stored versions: the last writer of each group."""
        self.last = dict(versions)

    def observe(self, seq_id: int, groups: Iterable[str]) -> None:
        reads: dict[str, int] = {}
        for group in groups:
            if group in self.always:
                continue
            reads[group] = self.last.get(group, -1)
            self.last[group] = seq_id
        self.read[seq_id] = reads

    def reads(self, group: str, seq_id: int) -> int:
        if group in self.always:
            return -1 if self.shared.kind == "frozen" else max(seq_id - self.shared.lag, -1)
        return self.read[seq_id][group]

    def applies(self, group: str, seq_id: int) -> tuple[int, ...]:
        if group not in self.always:
            return (seq_id,)
        if self.shared.kind == "frozen" or seq_id < self.shared.lag - 1:
            return ()
        return (seq_id - self.shared.lag + 1,)

    def forget(self, seq_id: int) -> None:
        self.read.pop(seq_id, None)
