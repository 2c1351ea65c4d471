"""`ChainOrder`: of the ready tasks, backwards first, then the one that the longest chain waits for.

    1  I or B     nothing can take their place: all earlier layers' versions come from them
    2  F and W    whichever starts the longer chain (`sennit.schedule.chains`). A forward's chain ends with the last
                  micro-batch, so an early micro-batch has those behind it to come as well

So a weight gradient goes before a forward if what waits for its version is more than what that forward leads to, which
depends on all subnets in flight. With earliest-first (`CspOrder`), many in flight are harmful: the newest take slots
that the oldest need. Here they only add choice.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from sennit.schedule.chains import Chains
from sennit.schedule.order import Task
from sennit.schedule.policy import Policy
from sennit.schedule.setting import Setting

Entry = tuple[float, int, int, Task]
"""What follows, negative; subnet and micro-batch; the task."""


class ChainOrder:
    """Picks the next task of one worker.

    Args:
        chains: told of subnets before their tasks become ready here.
    """

    def __init__(self, chains: Chains) -> None:
        self.chains = chains
        self.seen = 0
        self.backward: list[Entry] = []
        self.other: list[Entry] = []

    def add(self, task: Task) -> None:
        heappush(self.other if task.kind in "FW" else self.backward, self.entry(task))

    def pop(self) -> Task | None:
        if self.seen != self.chains.changes:
            self.sort_again()
        if self.backward:
            return heappop(self.backward)[3]
        return heappop(self.other)[3] if self.other else None

    def entry(self, task: Task) -> Entry:
        kind, y, j, r = task
        chain = self.chains.held[y]
        if kind == "F":
            follows = chain.forward[r] + (self.chains.m - 1 - j) * chain.links[r].forward_stretch
        elif kind == "W":
            follows = chain.weight[r]
        else:
            follows = chain.backward[r] + (self.chains.m - 1 - j) * chain.links[r].backward_stretch
        return -follows, y, j, task

    def sort_again(self) -> None:
        """Chains have grown since."""
        self.seen = self.chains.changes
        for heap in (self.backward, self.other):
            heap[:] = [self.entry(task) for _, _, _, task in heap]
            heapify(heap)


def order(worker: int, setting: Setting) -> ChainOrder:
    """The order of a worker, on the chains that the setting holds."""
    assert setting.chains is not None, "this policy needs chains"
    return ChainOrder(setting.chains)


POLICY = Policy(
    order=order,
    sync="csp",
    release="layer",
    releases=("layer", "stage"),
    split=None,
    chunked=True,
    chained=True,
    in_flight=lambda setting: 8,
)
