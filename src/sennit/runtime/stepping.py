"""`Stepping`: from parts of gradients to new versions of groups.

    parts ─▶ fold (rule 4) ─▶ clip ─▶ optimizer step ─▶ version published
                               │
              global: wait for the norms of all groups of the subnet, which their owners tell each other
              delayed:K: the clipped gradient waits for its turn, where it is; at a cut, in shared memory

    on a GPU
      layer   norms ─▶ factors ─▶ scale ─▶ step     launched one behind the other, behind the backward; no host waits
      global  norms ─▶ host ─▶ other owners ─▶ factor ─▶ launched: scale ─▶ step

    bulk:K   folds of K subnets are added up before all this; the bulk's last subnet stands for it

One of the workers that run a group's first step (`sennit.plan.stepper`) owns the group for that subnet (under
`bulk:K` for that bulk): it folds, clips and steps it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sennit.memory.gradients import Gradients, as_gradients
from sennit.runtime.bulks import Bulks
from sennit.runtime.channel import Message
from sennit.runtime.fold import GroupFold, Part
from sennit.runtime.placing import heir_of
from sennit.runtime.share import DeviceStore, Share
from sennit.runtime.subnet import Subnet
from sennit.runtime.told import Told
from sennit.supernet.clip import Row, factor, fold_norms, grad_norms, scale_, stacked_norms
from sennit.supernet.factors import Factors, computable, scale_there_
from sennit.trace.access import AccessLog


class Stepping:
    """The groups that one worker owns.

    Args:
        tell: sends a message without tensors to a worker.
        report: says something to the launcher.
        done: called when a subnet may have been finished here: a group of it has been stepped, its gradient put to
            wait or added to the bulk's.
        halt: tells from which subnet on none is trained any more.
    """

    def __init__(
        self, rank: int, share: Share, store: DeviceStore, log: AccessLog, tell: Callable[[int, Message], None],
        report: Callable[[Any], None], done: Callable[[Subnet], None], halt: Callable[[], float],
    ) -> None:  # fmt: skip
        self.rank, self.share, self.store, self.log = rank, share, store, log
        self.tell, self.report, self.done, self.halt = tell, report, done, halt
        self.recipe, self.host, self.groups = share.recipe, share.host, share.built.groups
        self.clip = share.recipe.clipping
        self.later = share.placement.device == "cuda"
        """Whether norms are on their way for a while: the worker looks at them between tasks."""
        self.at_once = share.recipe.sync_rule.kind == "asp"
        """Whether it waits for them before the next task, which reads what is there: no matter of time, then."""
        self.factors = Factors(self.clip.limit) if self.later and self.clip.kind == "layer" else None
        self.there: list[tuple[Subnet, str, Gradients]] = []
        """Groups that can be clipped on the device, and stepped, without anything having been told."""
        self.m = share.recipe.micro_batches
        self.folds: dict[tuple[int, str], GroupFold] = {}
        self.bulks = Bulks(share.bulk) if share.bulk > 1 else None
        self.last: dict[int, Subnet] = {}
        """Of each bulk in flight, its last subnet, once it is known."""
        self.writer: dict[str, tuple[int, str]] = {}
        """Of each group of a bulk about to step, its last subnet and step there."""
        self.complete: dict[int, dict[str, Gradients]] = {}
        """Folded gradients that wait for norms, by subnet and group."""
        self.norms: dict[int, dict[str, float | None]] = {}
        self.asked: list[tuple[Subnet, str]] = []
        """Groups whose norms are wanted."""
        self.arriving: tuple[list[tuple[Subnet, str]], Told] | None = None
        """Norms on their way to the host."""
        self.row = Row()
        """Where they lie on a GPU."""
        self.due: dict[tuple[str, int], Gradients | None] = {}
        """`(group, x)`: waiting gradients of `delayed:K` that this worker must apply. None: it is in shared memory."""
        for group in self.host.delayed:  # those that waited when the last run ended
            if rank == heir_of(group, share.built, share.plans):
                for x in range(store.version(group) + 1, share.start):
                    self.due[group, x] = None

    def part(self, subnet: Subnet, group: str, micro_batch: int, part: Part) -> None:
        """Take what one run gives for one micro-batch."""
        if self.add(subnet, group, micro_batch, part):
            self.all_in(subnet, group)

    def add(self, subnet: Subnet, group: str, micro_batch: int, part: Part) -> bool:
        """Add it up. Returns whether nothing is missing any more; then `all_in` is to be called."""
        key = (subnet.seq_id, group)
        fold = self.folds.get(key)
        if fold is None:
            fold = self.folds[key] = GroupFold(self.m, subnet.users[group], self.own)
        return fold.add(micro_batch, part)

    def all_in(self, subnet: Subnet, group: str) -> None:
        """Clip and step a group whose gradients have been added up."""
        self.folded(subnet, group, self.folds.pop((subnet.seq_id, group)).gradients())

    def own(self, name: str, grad: Tensor) -> Tensor:
        """A copy in the parameter's layout: what `AccumulateGrad` makes of a first gradient."""
        like = self.host.home(name)
        copy = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=grad.device)
        return copy.copy_(grad)

    def folded(self, subnet: Subnet, group: str, grads: Gradients) -> None:
        """All micro-batches are in: clip and step, or add to the bulk's sum."""
        if self.share.probing:
            self.report(("norm", subnet.seq_id, group, fold_norms(grad_norms(grads))))
        if self.bulks is None:
            self.clipped(subnet, group, grads)
            return
        bulk = subnet.seq_id // self.bulks.size
        self.bulks.add(subnet.seq_id, group, grads, subnet.first_step[group])
        subnet.unfinished.discard(group)
        if bulk in self.last and self.bulks.complete(bulk, group):
            self.mean(bulk, group)
        self.done(subnet)

    def close_bulk(self, last: Subnet) -> None:
        """The last subnet of a bulk is known: groups that it does not use may have all their gradients."""
        assert self.bulks is not None
        bulk = last.seq_id // self.bulks.size
        self.last[bulk] = last
        last.to_step = {group for group, worker in self.bulks.owner[bulk].items() if worker == self.rank}
        for group in sorted(last.to_step):
            if self.bulks.complete(bulk, group):
                self.mean(bulk, group)
        if not last.to_step:
            self.forget_bulk(bulk)

    def mean(self, bulk: int, group: str) -> None:
        """All gradients of a bulk are there."""
        assert self.bulks is not None
        grads, writer, step = self.bulks.mean(bulk, group)
        self.writer[group] = (writer, step)
        self.clipped(self.last[bulk], group, as_gradients(grads))

    def owners(self, subnet: Subnet) -> dict[str, int]:
        """Who steps which groups together with this subnet's."""
        if self.bulks is None:
            return subnet.trained_by
        return self.bulks.owner[subnet.seq_id // self.bulks.size]

    def clipped(self, subnet: Subnet, group: str, grads: Gradients) -> None:
        """Clip and step, once the norms that this takes are known."""
        if self.clip.kind == "none":
            self.step(subnet, group, grads)
            return
        if self.factors is not None and computable(grads):
            self.there.append((subnet, group, grads))
            return
        self.complete.setdefault(subnet.seq_id, {})[group] = grads
        self.asked.append((subnet, group))
        if not self.later:
            self.look()

    def ask(self) -> None:
        """Have the device tell norms that are wanted, of all groups that a task has completed at once."""
        if self.asked and self.arriving is None:
            grads = [grad for s, group in self.asked for grad in self.complete[s.seq_id][group].values()]
            row = self.row if grads and grads[0].is_cuda else None
            self.arriving = self.asked, Told(stacked_norms(grads, row) if grads else torch.zeros(0))
            self.asked = []

    def look(self) -> None:
        """Go on with groups that are clipped on the device, and with those whose norms have come from there."""
        self.ask()
        if self.there:
            self.by_layer_there()
        while self.told_norms():
            assert self.arriving is not None
            (groups, told), self.arriving = self.arriving, None
            numbers = iter(told.numbers())
            arrived = [(s, g, {name: next(numbers) for name in self.complete[s.seq_id][g]}) for s, g in groups]
            if self.clip.kind == "layer":
                self.by_layer(arrived)
            else:
                self.tell_others(arrived)
            self.ask()

    def tell_others(self, arrived: list[tuple[Subnet, str, dict[str, float]]]) -> None:
        """Norms of one subnet come from all owners of its groups."""
        for subnet, group, found in arrived:
            norms = dict[str, float | None].fromkeys(self.groups.by_name[group].names)
            norms.update(found)
            for worker in sorted(set(self.owners(subnet).values()) - {self.rank}):
                self.tell(worker, Message("N", subnet.seq_id, -1, -1, -1, [], norms))
            self.add_norms(subnet, norms)

    def waits(self) -> bool:
        """Whether there are groups to step: now, or when norms have come that are on their way."""
        return bool(self.there) or self.arriving is not None

    def told(self) -> bool:
        """Whether there is something to `look` at."""
        return bool(self.there) or self.told_norms()

    def told_norms(self) -> bool:
        """Whether norms have come."""
        return self.arriving is not None and (self.at_once or self.arriving[1].there())

    def next_step(self) -> int:
        """The earliest subnet with groups that can be stepped now. There is one."""
        now = [subnet.seq_id for subnet, *_ in self.there]
        if self.arriving is not None and (not now or self.told_norms()):
            now += [subnet.seq_id for subnet, _ in self.arriving[0]]
        return min(now)

    def by_layer_there(self) -> None:
        """Launch clipping and step of groups, each by its own norm, which the host does not learn."""
        assert self.factors is not None
        ready, self.there = sorted(self.there, key=_turn), []
        clipped = [grads for _, _, grads in ready if grads]
        if clipped:
            factors = self.factors.of(clipped)
            scale_there_((grads.together, by) for grads, by in zip(clipped, factors, strict=True))
        with self.store.together():
            for subnet, group, grads in ready:
                self.step(subnet, group, grads)

    def by_layer(self, arrived: list[tuple[Subnet, str, dict[str, float]]]) -> None:
        """Clip each group by its own norm, and step it."""
        ready: list[tuple[Subnet, str, Gradients, float]] = []
        for subnet, group, norms in arrived:
            grads = self.complete[subnet.seq_id].pop(group)
            if not self.complete[subnet.seq_id]:
                del self.complete[subnet.seq_id]
            ready.append((subnet, group, grads, factor(self.clip.limit, fold_norms(norms))))
        ready.sort(key=_turn)
        scale_((tensor, by) for _, _, grads, by in ready for tensor in grads.together)
        with self.store.together():
            for subnet, group, grads, _ in ready:
                self.step(subnet, group, grads)

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
        complete = self.complete.pop(y, {})
        scale_((tensor, by) for grads in complete.values() for tensor in grads.together)
        with self.store.together():
            for group in sorted(complete, key=lambda group: _turn((subnet, group))):
                self.step(subnet, group, complete[group])

    def completes(self, subnet: Subnet, norms: dict[str, float | None]) -> bool:
        """Whether these are the last norms of a subnet that are missing, so that its groups step."""
        return len(self.norms.get(subnet.seq_id, ())) + len(norms) >= self.parameters(subnet)

    def parameters(self, subnet: Subnet) -> int:
        """How many parameters of a subnet have a norm."""
        if subnet.norms is None:
            subnet.norms = sum(len(self.groups.by_name[g].names) for g in self.owners(subnet))
        return subnet.norms

    def step(self, subnet: Subnet, group: str, grads: Gradients) -> None:
        """The optimizer step of a group, with the learning rate of `subnet`."""
        y = subnet.seq_id
        if y >= self.halt():
            return  # the cut before it may have been reported, and be saved now
        if group in self.host.delayed:
            self.due[group, y] = grads
            if not self.later:
                self.settle()
        else:
            version, step = (y, subnet.first_step[group]) if self.bulks is None else self.writer.pop(group)
            with self.share.publishing(group, version):
                self.store.step(group, grads, self.recipe.lr_of(y), version)
            self.log.parameters(step, group, version, -1, "U", "W", version)
        if self.bulks is None:
            subnet.unfinished.discard(group)
        else:
            subnet.to_step.discard(group)
            if not subnet.to_step:
                self.forget_bulk(y // self.bulks.size)
        self.done(subnet)

    def forget_bulk(self, bulk: int) -> None:
        """This worker has nothing left to step in a bulk."""
        if self.bulks is not None and self.last.pop(bulk, None) is not None:
            self.bulks.forget(bulk)

    # -- delayed:K

    def apply_due(self, limit: float) -> None:
        """Apply waiting gradients whose turn has come and whose step lies before `limit`, up to which all subnets will
        run.

        The gradient of x is applied as the step of x + K - 1, with that step's learning rate.
        """
        lag = self.recipe.sharing.lag
        for x in sorted({x for _, x in self.due if x + lag - 1 < limit}):
            ready = [group for group, of in self.due if of == x and self.store.version(group) == x - 1]
            with self.store.together():
                for group in ready:
                    self.apply(group, x)

    def apply(self, group: str, x: int) -> None:
        """Apply the waiting gradient of x."""
        grads = self.due[group, x]
        if grads is None:
            grads = self.host.kept_gradient(group, x)
        assert grads is not None
        with self.share.publishing(group, x):
            self.store.step(group, grads, self.recipe.lr_of(x + self.recipe.sharing.lag - 1), x)
        self.log.parameters(group, group, x, -1, "U", "W", x)
        del self.due[group, x]

    def settle(self) -> None:
        """Have waiting gradients wait in shared memory, where they are at a cut. A device keeps them until then: its
        host would wait for the way there, and the step for the way back."""
        for (group, x), grads in self.due.items():
            if grads is not None:
                self.host.keep_gradient(group, x, grads)
                self.due[group, x] = None

    def next_due(self) -> int:
        """The subnet as whose step the first waiting gradient is applied: the next one is the first to read it."""
        return min(x for _, x in self.due) + self.recipe.sharing.lag - 1

    def due_before(self, limit: float) -> bool:
        """Whether a waiting gradient must still be applied before `limit` is reached."""
        return any(x + self.recipe.sharing.lag - 1 < limit for _, x in self.due)


def _turn(due: tuple[Any, ...]) -> tuple[int, int]:
    """In which order a subnet and a group are stepped, of those that can be: what the next subnet reads first comes
    first. Where another device reads it, its bytes have a way to go."""
    subnet, group = due[:2]
    return subnet.seq_id, subnet.first_read.get(group, -1)
