"""`GroupFold`: gradients of one group for one subnet, added up in the order of the contract (rule 4).

    micro-batch 0:  uses in reverse program order ──▶ total 0 ─┐
    micro-batch 1:  uses in reverse program order ──▶ total 1 ─┴▶ ((total 0) + total 1) + ...

Parts may arrive in any order and from several workers; a sum is formed only when its next term is there. What is lent
(`memory/parcel.py`) is copied if it must wait, or if it is the first term.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from sennit.errors import RunError
from sennit.memory.gradients import Gradients, Laid, Lying
from sennit.memory.parcel import Place, bundle, is_lent, kept, windows

Use = tuple[str, int]
"""`(name, step)`, step -1 for a parameter that one step uses."""

Part = Mapping[Use, Tensor | None]


def kept_part(part: Part) -> Part:
    """With copies of what is lent."""
    own = iter(kept([grad for grad in part.values() if grad is not None]))
    return {use: None if grad is None else next(own) for use, grad in part.items()}


class GroupFold:
    """Folds parts as they come.

    Args:
        micro_batches: M.
        runs: how many runs use the group; each sends one part per micro-batch.
        own: makes the first contribution a copy in the parameter's layout.
        keep: copies what is lent. Before anything is added, so that it may fail and be called again.
    """

    def __init__(
        self, micro_batches: int, runs: int, own: Callable[[str, Tensor], Tensor],
        keep: Callable[[Part], Part] = kept_part,
    ) -> None:  # fmt: skip
        self.m, self.runs, self.own, self.keep = micro_batches, runs, own, keep
        self.parts: dict[int, dict[Use, Tensor | None]] = {}
        self.seen: dict[int, int] = {}
        self.next = 0
        self.half = False
        """Something is being added, or that has failed."""
        self.total: dict[str, Tensor] = {}
        self.whole: tuple[Tensor, tuple[Place, ...]] | None = None
        """All of `total`, if it lies in one piece and may be added to as one."""

    def add(self, micro_batch: int, part: Part) -> bool:
        """Add what one run gives for one micro-batch. Returns whether everything is there."""
        lying = part.lying if isinstance(part, Laid) else None
        at_once = self.runs == 1 and micro_batch == self.next and not self.half
        if lying is not None and at_once and self._fold_laid(lying):
            self.next += 1
            self._fold_waiting()
            return self.next == self.m
        seen = self.seen.get(micro_batch, 0) + 1
        added = micro_batch == self.next and seen == self.runs and self.total
        if not added and any(grad is not None and is_lent(grad) for grad in part.values()):
            part = self.keep(part)
        if self.half:
            raise RunError(
                "gradients have been added up in part when the device was full. Go on with more of it free: a lower "
                "--in-flight, a --budget (or a lower one), or other programs ended (see `nvidia-smi`)"
            )
        self.seen[micro_batch] = seen
        self.parts.setdefault(micro_batch, {}).update(part)
        self._fold_waiting()
        return self.next == self.m

    def _fold_waiting(self) -> None:
        """Whatever is next and there."""
        self.half = True
        while self.seen.get(self.next, 0) == self.runs:
            self._fold(self.parts.pop(self.next))
            self.next += 1
        self.half = False

    def gradients(self) -> Gradients:
        """All that was added up."""
        found = Gradients(self.total)
        if self.whole is not None and len(self.whole[1]) == len(found):
            found.piece = self.whole
        return found

    def _fold(self, part: Part) -> None:
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

    def _fold_laid(self, lying: Lying) -> bool:
        """Add a layer's gradients, of which is known how they lie. False if they do not lie like those before."""
        if not self.total:
            numbers = lying.numbers.clone() if lying.lent else lying.numbers
            self.whole = numbers, lying.places
            self.total = dict(zip(lying.names, windows(numbers, lying.places), strict=True))
            return True
        if self.whole is None or self.whole[1] != lying.places or tuple(self.total) != lying.names:
            return False
        self.whole[0].add_(lying.numbers)
        return True

    def _fold_whole(self, part: Part) -> bool:
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
