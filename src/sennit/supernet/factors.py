"""`Factors`: what gradients are clipped with by `layer:X`, computed where they are. No host waits for it.

                  group 0   group 1   group 2
    first name      n         n         n         float32 norms; their squares in float64, added from above: the left
    second          n         n         0         fold over sorted names (contract, rule 4); then the root, the limit
    third           n         0         0         by root + epsilon, at most 1
                    ▼         ▼         ▼
                  factor    factor    factor      float32, a number on the device each

Each operation is one of IEEE 754, rounded once, by a kernel of its own: so the bits are those of `clip.fold_norms` and
`clip.factor`, and a column that is filled up with zeros has the sum of its numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from sennit.supernet.clip import EPSILON, norms_of

MOST = 64
"""Gradients of a group: each is one launch, and from about here on a host knows their norms earlier."""


def computable(grads: Mapping[str, Tensor]) -> bool:
    """Whether a group can be clipped where it is: a host multiplies other types by a factor that is not rounded."""
    return len(grads) <= MOST and all(grad.dtype == torch.float32 for grad in grads.values())


class Factors:
    """Of groups that one device clips.

    All memory is taken once and used again, as by `clip.Row`: what a call gives is good until the next one.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.shape = 0, 0

    def of(self, groups: Sequence[Mapping[str, Tensor]]) -> list[Tensor]:
        """Of each group, by what to multiply its gradients. All on one device; each group has at least one."""
        exact = self.exact(groups)
        self._factors.copy_(exact)
        return self._each[: len(groups)]

    def exact(self, groups: Sequence[Mapping[str, Tensor]]) -> Tensor:
        """The same before they are rounded, in float64; numbers behind those of the groups mean nothing."""
        norms = norms_of([grads[name] for grads in groups for name in sorted(grads)])
        longest = max(map(len, groups))
        if longest > self.shape[0] or len(groups) > self.shape[1]:
            self._take(max(longest, self.shape[0]), max(2 * len(groups), self.shape[1]), norms[0].device)
        width = self.shape[1]
        cells = [self._cells[row * width + column] for column, grads in enumerate(groups) for row in range(len(grads))]
        self._norms.zero_()
        torch._foreach_copy_(cells, norms)  # pyright: ignore[reportPrivateImportUsage]
        self._squares.copy_(self._norms)
        self._squares.mul_(self._squares)
        total = self._rows[0]
        for row in self._rows[1:longest]:
            total.add_(row)
        _root_(total).add_(EPSILON)
        torch.div(self._limit, total, out=total)  # `limit / total` would be a product with the reciprocal
        return total.clamp_max_(1.0)  # NaN stays NaN

    def _take(self, rows: int, columns: int, device: torch.device) -> None:
        """Memory for more groups, or longer ones."""
        self.shape = rows, columns
        self._norms = torch.zeros(rows, columns, device=device)
        self._cells = list(self._norms.view(-1).unbind())
        self._squares = torch.zeros(rows, columns, dtype=torch.float64, device=device)
        self._rows = list(self._squares.unbind())
        self._limit = torch.full((), self.limit, dtype=torch.float64, device=device)
        self._factors = torch.zeros(columns, device=device)
        self._each = list(self._factors.unbind())


def _root_(numbers: Tensor) -> Tensor:
    """Square roots in place. On a CPU torch takes MKL's, some of which are a bit off."""
    if numbers.is_cuda:
        return numbers.sqrt_()
    np.sqrt(numbers.numpy(), out=numbers.numpy())
    return numbers


def scale_there_(groups: Iterable[tuple[list[Tensor], Tensor]]) -> None:
    """Multiply each group's tensors in place by its factor, all float32. By exactly 1.0, no bit changes.

    Groups in one piece go together, which spares the host calls; one that lies apart takes one launch, too.
    """
    pieces: list[Tensor] = []
    factors: list[Tensor] = []
    for tensors, by in groups:
        if len(tensors) == 1:
            pieces += tensors
            factors.append(by)
        elif tensors:
            torch._foreach_mul_(tensors, by)  # pyright: ignore[reportPrivateImportUsage]
    if pieces:
        torch._foreach_mul_(pieces, factors)  # pyright: ignore[reportPrivateImportUsage]
