"""Bulks and asynchronous reads: the synchronisation rules beside causal order, as `Sync` (contract, rule 3).

    bulk:K      subnets iK .. iK+K-1 read one version, and every group steps once, at the end of the bulk

        subnet      0   1   2   3 | 4   5   6   7
        writes g    x       x     |     x
        reads g    -1      -1     |     2           version 2: all gradients up to subnet 2 are included

    asp         a forward reads whatever is there

A version is the last subnet whose gradient is included, as everywhere: for bulks the last writer of the group in a
bulk that is over. What the papers call BSP is a bulk of as many subnets as there are workers (GPipe; NASPipe section
2.2), their ASP is PipeDream's. With both the result depends on the number of workers; with `bulk:K` it does not.
"""

from __future__ import annotations

from collections.abc import Iterable


class BulkSync:
    """One version per bulk.

    Args:
        size: K, subnets per bulk.
        frozen: groups that nobody writes.
        behind: bulks between a step and the first reader of its version: 0, or 1 for PipeDream-2BW, where the
            gradients of bulk t are taken at the weights that bulk t-2 has made.
    """

    def __init__(self, size: int, frozen: Iterable[str] = (), behind: int = 0) -> None:
        assert size >= 1 and behind >= 0
        self.size, self.behind = size, behind
        self.frozen = frozenset(frozen)
        self.last: dict[str, dict[int, int]] = {}
        """Per group, bulk to its last writer; of bulks that may still be asked for."""
        self.read: dict[int, dict[str, int]] = {}

    def start(self, versions: dict[str, int]) -> None:
        """Go on from stored versions, at the first subnet of a bulk."""
        self.last = {group: {version // self.size: version} for group, version in versions.items() if version >= 0}

    def observe(self, seq_id: int, groups: Iterable[str]) -> None:
        bulk = seq_id // self.size
        reads: dict[str, int] = {}
        for group in groups:
            if group in self.frozen:
                continue
            writers = self.last.setdefault(group, {})
            over = [b for b in writers if b < bulk - self.behind]
            newest = max(over, default=None)
            reads[group] = -1 if newest is None else writers[newest]
            for b in over:
                if b != newest:
                    del writers[b]
            writers[bulk] = seq_id
        self.read[seq_id] = reads

    def reads(self, group: str, seq_id: int) -> int:
        return -1 if group in self.frozen else self.read[seq_id][group]

    def applies(self, group: str, seq_id: int) -> tuple[int, ...]:
        """The step of a bulk belongs to its last subnet, whether that writes the group or not.

        Returns:
            For the last subnet of a bulk, all of the bulk; those that did not use the group have no gradient.
        """
        if group in self.frozen or (seq_id + 1) % self.size:
            return ()
        return tuple(range(seq_id + 1 - self.size, seq_id + 1))

    def forget(self, seq_id: int) -> None:
        self.read.pop(seq_id, None)


class AspSync:
    """No waiting: a forward reads the newest version that is there (PipeDream; TAP without stashing)."""

    def start(self, versions: dict[str, int]) -> None:
        """Nothing is awaited, so nothing is remembered."""

    def observe(self, seq_id: int, groups: Iterable[str]) -> None:
        """All the same to it."""

    def reads(self, group: str, seq_id: int) -> int:
        """-1: any version will do."""
        return -1

    def applies(self, group: str, seq_id: int) -> tuple[int, ...]:
        return (seq_id,)

    def forget(self, seq_id: int) -> None:
        """Nothing is remembered."""
