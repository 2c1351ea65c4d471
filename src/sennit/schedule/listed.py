"""`ListOrder`: a fixed order, once for every round of subnets: GPipe, 1F1B and their kin.

    actions of one round    0F0 0F1 0B0 0B1       stage 0, micro-batches 0 and 1
    round of 2 subnets, M = 1                     those are subnets 0 and 1; in the next round 2 and 3
    round of 1 subnet,  M = 2                     those are micro-batches 0 and 1 of subnet 0; in the next round of 1

A worker waits for the next task of its list, whatever else is ready. That is what these schedules are. The last round
of a bulk, and that of the stream, may be cut short: tasks of subnets that do not come are left out on all workers, so
what remains can still run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from sennit.errors import UserError
from sennit.schedule.action import Action
from sennit.schedule.order import Task
from sennit.schedule.setting import Setting

LONGEST = 100_000
"""Micro-batches of a round: each worker holds an action or more for every one."""


class ListOrder:
    """The order of one worker.

    Args:
        actions: of one round; its micro-batches are numbered through all subnets of the round.
        micro_batches: M of each subnet.
        bulk: subnets per bulk.
        end: the first subnet that does not come; less where a run ends early, so that what is left can still run.
        in_flight: most unfinished subnets; rounds are no longer than that.
        start: the first subnet.
    """

    fixed = True

    def __init__(
        self, actions: Sequence[Action], micro_batches: int, bulk: int = 1, end: Callable[[], float] = lambda: math.inf,
        in_flight: float = math.inf, start: int = 0,
    ) -> None:  # fmt: skip
        assert actions, "a worker without work takes no part"
        self.actions, self.m, self.bulk, self.end = actions, micro_batches, bulk, end
        self.round = int(min(bulk, in_flight))
        self.ready: set[Task] = set()
        self.begin = start
        """First subnet of the round."""
        self.at = 0
        self.next: Task | None = None

    def add(self, task: Task) -> None:
        self.ready.add(task)

    def pop(self) -> Task | None:
        task = self.next
        if task is None or task.seq_id >= self.end():
            task = self.next = self.following()
        if task not in self.ready:
            return None
        self.ready.remove(task)
        self.step()
        self.next = None
        return task

    def following(self) -> Task:
        """The next task of the list that there is a subnet for."""
        while True:
            stage, kind, number = self.actions[self.at]
            subnet, j = divmod(number, self.m)
            seq_id = self.begin + subnet
            if not subnet or (subnet < self.size and seq_id < self.end()):
                return Task(kind, seq_id, j, stage)
            self.step()

    @property
    def size(self) -> int:
        """Subnets of this round: no more than the bulk has left."""
        return min(self.round, self.bulk - self.begin % self.bulk)

    def step(self) -> None:
        self.at += 1
        if self.at == len(self.actions):
            self.at = 0
            self.begin += self.size


def listed(actions: Callable[[int, Setting, int], Sequence[Action]]) -> Callable[[int, Setting], ListOrder]:
    """`Policy.order` from the list of a worker.

    Args:
        actions: worker, setting and micro-batches of a whole round to the actions.

    The order raises UserError if a round is so long that its list would fill the memory.
    """

    def order(worker: int, setting: Setting) -> ListOrder:
        number = setting.round * setting.micro_batches
        if number > LONGEST:
            fit = LONGEST // setting.micro_batches
            fewer = f"a bulk of at most {fit} subnets (bulk:K), --in-flight {fit} or less, or " if fit else ""
            raise UserError(
                f"a fixed order lists every task of a round: {setting.round:,} subnets (bulks of {setting.bulk:,}) x "
                f"{setting.micro_batches:,} micro-batches, more than {LONGEST:,}. Use {fewer}fewer micro-batches"
            )
        held = actions(worker, setting, number)
        return ListOrder(held, setting.micro_batches, setting.bulk, setting.end, setting.in_flight, setting.start)

    return order
