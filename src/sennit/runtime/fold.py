"""`GroupFold`: gradients of one group for one subnet, added up in the order of the contract (rule 4).

    micro-batch 0:  uses in reverse program order ──▶ total 0 ─┐
    micro-batch 1:  uses in reverse program order ──▶ total 1 ─┴▶ ((total 0) + total 1) + ...

Parts may arrive in any order and from several workers; a sum is formed only when its next term is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

Use = tuple[str, int]
"""`(name, step)`, step -1 for a parameter that one step uses."""


class GroupFold:
    """Folds parts as they come.

    Args:
        micro_batches: M.
        runs: how many runs use the group; each sends one part per micro-batch.
        own: makes the first contribution a copy in the parameter's layout.
    """

    def __init__(self, micro_batches: int, runs: int, own: Callable[[str, Tensor], Tensor]) -> None:
        self.m, self.runs, self.own = micro_batches, runs, own
        self.parts: dict[int, dict[Use, Tensor | None]] = {}
        self.seen: dict[int, int] = {}
        self.next = 0
        self.total: dict[str, Tensor] = {}

    def add(self, micro_batch: int, part: Mapping[Use, Tensor | None]) -> bool:
        """Add what one run gives for one micro-batch. Returns whether everything is there."""
        self.parts.setdefault(micro_batch, {}).update(part)
        self.seen[micro_batch] = self.seen.get(micro_batch, 0) + 1
        while self.seen.get(self.next, 0) == self.runs:
            self._fold(self.parts.pop(self.next))
            self.next += 1
        return self.next == self.m

    def _fold(self, part: Mapping[Use, Tensor | None]) -> None:
        totals: dict[str, Tensor] = {}
        for name, step in sorted(part, key=lambda use: (use[0], -use[1])):
            grad = part[name, step]
            if grad is not None:
                totals[name] = totals[name] + grad if name in totals else grad
        for name, grad in totals.items():
            if name in self.total:
                self.total[name].add_(grad)
            else:
                self.total[name] = self.own(name, grad)
