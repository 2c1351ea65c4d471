"""`GroupFold`: gradients of one group for one subnet, added up in the order of the contract (rule 4).

    micro-batch 0:  uses in reverse program order ──▶ total 0 ─┐
    micro-batch 1:  uses in reverse program order ──▶ total 1 ─┴▶ ((total 0) + total 1) + ...

Parts may arrive in any order and from several workers; a sum is formed only when its next term is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from sennit.memory.gradients import Gradients
from sennit.memory.parcel import Place, bundle

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
        self.whole: tuple[Tensor, tuple[Place, ...]] | None = None
        """All of `total`, if it lies in one piece and may be added to as one."""

    def add(self, micro_batch: int, part: Mapping[Use, Tensor | None]) -> bool:
        """Add what one run gives for one micro-batch. Returns whether everything is there."""
        self.parts.setdefault(micro_batch, {}).update(part)
        self.seen[micro_batch] = self.seen.get(micro_batch, 0) + 1
        while self.seen.get(self.next, 0) == self.runs:
            self._fold(self.parts.pop(self.next))
            self.next += 1
        return self.next == self.m

    def gradients(self) -> Gradients:
        """All that was added up."""
        found = Gradients(self.total)
        if self.whole is not None and len(self.whole[1]) == len(found):
            found.piece = self.whole
        return found

    def _fold(self, part: Mapping[Use, Tensor | None]) -> None:
        if self._fold_whole(part):
            return
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

    def _fold_whole(self, part: Mapping[Use, Tensor | None]) -> bool:
        """Add gradients that lie in one piece by one operation: the same sums. False if they do not."""
        grads = [grad for grad in part.values() if grad is not None]
        if len({name for name, _ in part}) < len(part) or (self.total and self.whole is None):
            return False
        piece = bundle(grads)
        if piece is None:
            return False
        if self.whole is None:
            self.whole = piece
            self.total = {name: grad for (name, _), grad in part.items() if grad is not None}  # a copy already
            return True
        numbers, places = self.whole
        same = (
            places == piece[1] and {name for (name, _), grad in part.items() if grad is not None} == self.total.keys()
        )
        if same:
            numbers.add_(piece[0])
        return same
