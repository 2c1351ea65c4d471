"""`Entry`: which subnets are under way on a worker.

drawn, recorded ── limit reached, or so many in flight? ──no──▶ let in: cut, and its tasks made known
                                                                    │ nothing left to do for it here
                                                                    ▼
                                                    put away: the low-water mark moves, more may come in
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from sennit.program.step import Program
from sennit.runtime.batches import Batches
from sennit.runtime.bells import LOW
from sennit.runtime.collecting import between_subnets
from sennit.runtime.coming import Coming
from sennit.runtime.control import Line
from sennit.runtime.delivery import Delivery
from sennit.runtime.pieces import pieces_of
from sennit.runtime.reasons import Reasons
from sennit.runtime.recorder import LET_IN, Recorder
from sennit.runtime.scheduling import refuse_detours
from sennit.runtime.share import Share
from sennit.runtime.slot_use import SlotUse
from sennit.runtime.stepping import Stepping
from sennit.runtime.subnet import BufferOrder, Subnet, make_subnet, parts_of
from sennit.runtime.waiting import Waiting
from sennit.schedule.chains import Chains
from sennit.schedule.order import Task
from sennit.simulate.chain_links import chain_links
from sennit.supernet.sync import Sync


class Entry:
    """Of one worker.

    Args:
        lines: of the worker.
        chains: of the order, if it looks at them.
        fixed: whether the order is a list.

    Attributes:
        subnets: under way here.
        next_id: the next one to be let in.
        limit: the first that must not be let in yet.
        halt: subnets from here on must not run: one of them has a loss that is not finite.
    """

    def __init__(
        self, rank: int, share: Share, sync: Sync, chains: Chains | None, fixed: bool, ready: Reasons, waiting: Waiting,
        batches: Batches, lines: Iterable[Line],
    ) -> None:  # fmt: skip
        self.rank, self.share, self.built, self.m = rank, share, share.built, share.recipe.micro_batches
        self.sync, self.chains, self.fixed = sync, chains, fixed
        self.ready, self.waiting, self.batches = ready, waiting, batches
        self.order = BufferOrder()
        self.order.start(share.words)
        self.scarce = share.placement.budget > 0
        """Whether layers must leave the device for others."""
        self.coming = Coming(
            self.built, share.placement.loaders, lines, self.scarce, share.start, self.tell_of
        )  # fmt: skip
        self.subnets: dict[int, Subnet] = {}
        self.next_id = self.limit = share.start
        self.halt = math.inf

    def join(self, stepping: Stepping, slots: SlotUse, delivery: Delivery, recorder: Recorder) -> None:
        """Parts of the worker that ask for `subnets` themselves."""
        self.stepping, self.slots, self.delivery, self.recorder = stepping, slots, delivery, recorder

    @property
    def end(self) -> float:
        """No subnet from here on will be run."""
        return min(self.limit, self.halt)

    def admit(self) -> bool:
        """Take in subnets up to the limit, as many as may be in flight from the lowest unfinished one on.

        Returns:
            Whether there was one.
        """
        before = self.next_id
        while self.next_id < min(self.limit, int(self.share.low.min()) + self.share.in_flight):
            if not self.coming.has(self.next_id):
                self.ready.held_up("draw")
                return self.next_id > before
            self.next_id += 1
            self.take_in(self.next_id - 1)
            if self.scarce:  # one for this one, one more; what they cost now is saved when they are let in
                self.coming.prepare(self.next_id, self.limit)
                self.coming.prepare(self.next_id, self.limit)
            elif self.coming.programs.wanted:  # a worker that is never idle has its programs recorded, too
                self.coming.ask(self.next_id, self.limit)
                self.coming.ask(self.next_id, self.limit)
        if self.next_id > self.share.start:
            self.ready.held_up("cut" if self.next_id >= self.limit else "in flight")
        return self.next_id > before

    def tell_of(self, y: int, program: Program) -> None:
        """Plan and slots learn of a subnet to come."""
        self.share.plans.tell(y, program.places)
        if self.scarce:
            here = (s for s in program.steps if self.rank in self.share.plans.spread(y, s.block, self.m))
            self.slots.foretell(y, {group for step in here for group in self.built.groups.of_step(step)[0]})

    def take_in(self, y: int) -> None:
        """Cut a subnet, and tell all parts of it."""
        between_subnets()
        plans, placement, program = self.share.plans, self.share.placement, self.coming.let_in(y)
        plans.forget(int(self.share.low.min()))
        plans.tell(y, program.places)
        parts = parts_of(
            program, self.built.groups, lambda block: plans.stretch(y, 0, block), per_layer=placement.release == "layer"
        )
        subnet = make_subnet(
            y, program, self.built.groups, self.share.frozen, self.sync, self.order,
            lambda block: plans.spread(y, block, self.m), parts, self.rank, self.m, self.stepping.bulks,
            placement.split, self.share.numbers,
        )  # fmt: skip
        if self.fixed:
            refuse_detours(subnet, self.share.recipe, placement)
        self.subnets[y] = subnet
        self.share.elsewhere.let_in(subnet, self.sync)
        if self.chains is not None:
            pieces = pieces_of(subnet.runs, subnet.spread, self.built.groups, self.share.frozen, self.share.costs)
            self.chains.forget(int(self.share.low.min()))
            self.chains.admit(y, chain_links(pieces, lambda group: self.sync.reads(group, y), split=placement.split))
        self.recorder.count({LET_IN: self.next_id})
        self.slots.admit(subnet)
        for run, j in subnet.own:
            self.ready.add(Task("F", y, j, run.index), self.waiting.events(subnet, run, j))
        if (bulks := self.stepping.bulks) is not None and not (y + 1) % bulks.size:
            self.stepping.close_bulk(subnet)
        for message, tensors in self.delivery.kept(y):
            self.delivery.put(message, tensors)
        self.settle(subnet)

    def settle(self, subnet: Subnet) -> None:
        """If this worker has nothing left to do for a subnet, put it away and move the low-water mark."""
        y = subnet.seq_id
        if not subnet.done or y not in self.subnets:
            return
        del self.subnets[y]
        self.batches.drop(y)
        self.sync.forget(y)
        low = self.share.low
        before = low.min()
        mine = min(self.subnets, default=self.next_id)
        if mine != low[self.rank]:
            self.share.elsewhere.put_away(mine)
        low[self.rank] = mine
        if low.min() > before:
            self.share.bells.ring(LOW)
