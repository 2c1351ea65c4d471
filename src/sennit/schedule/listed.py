"""`ListOrder`: a fixed order, once for every bulk of subnets: GPipe, 1F1B and their kin.

    actions of one bulk    0F0 0F1 0B0 0B1        stage 0, micro-batches 0 and 1
    bulk of 2 subnets, M = 1                      those are subnets 0 and 1; in the next bulk 2 and 3
    bulk of 1 subnet,  M = 2                      those are micro-batches 0 and 1 of subnet 0; in the next bulk of 1

A worker waits for the next task of its list, whatever else is ready. That is what these schedules are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from sennit.schedule.action import Action
from sennit.schedule.order import Task


class ListOrder:
    """The order of one worker.

    Args:
        actions: of one bulk; its micro-batches are numbered through all subnets of the bulk.
        micro_batches: M of each subnet.
        bulk: subnets per bulk.
        end: the first subnet that does not come; a last bulk may be cut short there.
    """

    def __init__(
        self, actions: Sequence[Action], micro_batches: int, bulk: int = 1, end: Callable[[], float] = lambda: math.inf
    ) -> None:
        assert actions, "a worker without work takes no part"
        self.actions, self.m, self.bulk, self.end = actions, micro_batches, bulk, end
        self.ready: set[Task] = set()
        self.turn = self.at = 0

    def add(self, task: Task) -> None:
        self.ready.add(task)

    def pop(self) -> Task | None:
        task = self.following()
        if task not in self.ready:
            return None
        self.ready.remove(task)
        self.step()
        return task

    def following(self) -> Task:
        """The next task of the list that there is a subnet for."""
        while True:
            stage, kind, number = self.actions[self.at]
            subnet, j = divmod(number, self.m)
            seq_id = self.turn * self.bulk + subnet
            if seq_id < self.end() or not subnet:
                return Task(kind, seq_id, j, stage)
            self.step()

    def step(self) -> None:
        self.at += 1
        if self.at == len(self.actions):
            self.at, self.turn = 0, self.turn + 1
