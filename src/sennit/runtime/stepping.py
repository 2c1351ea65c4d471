"""`Stepping`: from parts of gradients to new versions of groups.

    parts ─▶ fold (rule 4) ─▶ clip ─▶ optimizer step ─▶ version published
                               │
              global: wait for the norms of all groups of the subnet, which their owners tell each other
              delayed:K: the clipped gradient waits in shared memory for its turn

The worker that runs a group's first step owns the group for that subnet: it folds, clips and steps it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sennit.runtime.channel import Message
from sennit.runtime.fold import GroupFold, Use
from sennit.runtime.share import DeviceStore, Share
from sennit.runtime.subnet import Subnet
from sennit.supernet.clip import factor, fold_norms, grad_norms, scale_
from sennit.trace.access import AccessLog


class Stepping:
    """The groups that one worker owns.

    Args:
        tell: sends a message without tensors to a worker.
        report: says something to the launcher.
        done: called when a group of a subnet has been stepped (or its gradient put to wait).
    """

    def __init__(
        self, rank: int, share: Share, store: DeviceStore, log: AccessLog, tell: Callable[[int, Message], None],
        report: Callable[[Any], None], done: Callable[[Subnet, str], None],
    ) -> None:  # fmt: skip
        self.rank, self.share, self.store, self.log = rank, share, store, log
        self.tell, self.report, self.done = tell, report, done
        self.recipe, self.host, self.groups = share.recipe, share.host, share.built.groups
        self.clip = share.recipe.clipping
        self.m = share.recipe.micro_batches
        self.folds: dict[tuple[int, str], GroupFold] = {}
        self.complete: dict[int, dict[str, dict[str, Tensor]]] = {}
        """Folded gradients that wait for the global norm, by subnet and group."""
        self.norms: dict[int, dict[str, float | None]] = {}
        self.due: dict[tuple[str, int], None] = {}
        """`(group, x)`: waiting gradients of `delayed:K` that this worker must apply."""
        if not rank:  # those that waited when the last run ended
            for group in self.host.delayed:
                for x in range(store.version(group) + 1, share.start):
                    self.due[group, x] = None

    def part(self, subnet: Subnet, group: str, micro_batch: int, part: dict[Use, Tensor | None]) -> None:
        """Take what one run gives for one micro-batch."""
        key = (subnet.seq_id, group)
        fold = self.folds.get(key)
        if fold is None:
            fold = self.folds[key] = GroupFold(self.m, subnet.users[group], self.own)
        if fold.add(micro_batch, part):
            del self.folds[key]
            self.folded(subnet, group, fold.total)

    def own(self, name: str, grad: Tensor) -> Tensor:
        """A copy in the parameter's layout: what `AccumulateGrad` makes of a first gradient."""
        like = self.host.home(name)
        copy = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=grad.device)
        return copy.copy_(grad)

    def folded(self, subnet: Subnet, group: str, grads: dict[str, Tensor]) -> None:
        """All micro-batches are in: clip and step, or wait for the others' norms."""
        y = subnet.seq_id
        if self.share.probing:
            self.report(("norm", y, group, fold_norms(grad_norms(grads))))
        if self.clip.kind == "layer":
            scale_(grads, factor(self.clip.limit, fold_norms(grad_norms(grads))))
        if self.clip.kind != "global":
            self.step(subnet, group, grads)
            return
        norms: dict[str, float | None] = dict.fromkeys(self.groups.by_name[group].names)
        norms.update(grad_norms(grads))
        self.complete.setdefault(y, {})[group] = grads
        for worker in sorted({subnet.owner[g] for g in subnet.owner if g not in self.share.frozen} - {self.rank}):
            self.tell(worker, Message("N", y, -1, -1, -1, [], norms))
        self.add_norms(subnet, norms)

    def add_norms(self, subnet: Subnet, norms: dict[str, float | None]) -> None:
        """Once the norms of all gradients of a subnet are known, its groups can step.

        Only owners of groups that train are told norms, and each has such a group left until it knows all: so no
        subnet is forgotten while norms are on their way, and none is kept by norms that come last.
        """
        y = subnet.seq_id
        known = self.norms.setdefault(y, {})
        known.update(norms)
        if len(known) < self.parameters(subnet):
            return
        del self.norms[y]
        by = factor(self.clip.limit, fold_norms({n: norm for n, norm in known.items() if norm is not None}))
        for group, grads in self.complete.pop(y, {}).items():
            scale_(grads, by)
            self.step(subnet, group, grads)

    def completes(self, subnet: Subnet, norms: dict[str, float | None]) -> bool:
        """Whether these are the last norms of a subnet that are missing, so that its groups step."""
        return len(self.norms.get(subnet.seq_id, ())) + len(norms) >= self.parameters(subnet)

    def parameters(self, subnet: Subnet) -> int:
        """How many parameters of a subnet have a norm."""
        return sum(len(self.groups.by_name[g].names) for g in subnet.owner if g not in self.share.frozen)

    def step(self, subnet: Subnet, group: str, grads: dict[str, Tensor]) -> None:
        y = subnet.seq_id
        if group in self.host.delayed:
            self.host.keep_gradient(group, y, grads)
            self.due[group, y] = None
        else:
            with self.share.board.making(group, y):
                self.store.step(group, grads, self.recipe.lr_of(y), y)
            self.log.parameters(subnet.first_step[group], group, y, -1, "U", "W", y)
        self.done(subnet, group)

    # -- delayed:K

    def apply_due(self, limit: float) -> None:
        """Apply waiting gradients whose turn has come and whose step lies before `limit`.

        The gradient of x is applied as the step of x + K - 1, with that step's learning rate.
        """
        lag = self.recipe.sharing.lag
        for group, x in list(self.due):
            if x + lag - 1 >= limit or self.store.version(group) != x - 1:
                continue
            grads = self.host.kept_gradient(group, x)
            assert grads is not None
            with self.share.board.making(group, x):
                self.store.step(group, grads, self.recipe.lr_of(x + lag - 1), x)
            self.log.parameters(group, group, x, -1, "U", "W", x)
            del self.due[group, x]

    def due_before(self, limit: float) -> bool:
        """Whether a waiting gradient must still be applied before `limit` is reached."""
        return any(x + self.recipe.sharing.lag - 1 < limit for _, x in self.due)
