"""`ChainOrder`: of the ready tasks, the one that the longest chain waits for (`sennit.schedule.chains`).

A chain ends with the last micro-batch, so an early one has those behind it to come as well: each has to go through the
whole stretch of layers on this worker, forward, or backward with its weight gradients.

    follows(F j) = chain + (M - 1 - j) x forwards of the stretch
    follows(B j) = chain + (M - 1 - j) x backwards and weight gradients of the stretch            I likewise
    follows(W j) = chain

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
        self.ready: list[Entry] = []

    def add(self, task: Task) -> None:
        heappush(self.ready, self.entry(task))

    def pop(self) -> Task | None:
        if self.seen != self.chains.changes:
            self.seen = self.chains.changes
            self.ready = [self.entry(task) for _, _, _, task in self.ready]
            heapify(self.ready)
        return heappop(self.ready)[3] if self.ready else None

    def entry(self, task: Task) -> Entry:
        kind, y, j, r = task
        chain, behind = self.chains.held[y], self.chains.m - 1 - j
        if kind == "F":
            follows = chain.forward[r] + behind * chain.links[r].forward_stretch
        elif kind == "W":
            follows = chain.weight[r]
        else:
            follows = chain.backward[r] + behind * chain.links[r].backward_stretch
        return -follows, y, j, task


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
