"""PipeDream (Narayanan et al. 2019): one forward, one backward, on and on, with no flush.

    3 stages, M = 1; the numbers are subnets
    worker 0  0F0 0F1 0F2  .   .  0B0 0F3 0B1 0F4 ...
    worker 1   .  1F0 1F1  .  1B0 1F2 1B1 1F3 ...
    worker 2   .   .  2F0 2B0 2F1 2B1 2F2 ...

Worker k of D has D - k forwards under way (section 3.2), over all subnets: the next one begins before this one has
stepped. So a backward meets weights that have moved on since its forward; PipeDream keeps the old ones (`asp:stash`),
PipeDream-2BW two versions for all (`asp:2bw`; Narayanan et al. 2021). While the next forward waits for a version, as
it may under other rules, backwards go on.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush

from sennit.schedule.fixed_stream import FixedStream
from sennit.schedule.order import Order, Task
from sennit.schedule.policy import Policy
from sennit.schedule.setting import Setting
from sennit.schedule.warmup import warmup_counts


class StreamOrder:
    """1F1B of one worker over a stream without end. Forwards go in the order of the stream.

    Args:
        ahead: forwards under way.
        micro_batches: M of each subnet.
        start: the first subnet.
    """

    fixed = True

    def __init__(self, ahead: int, micro_batches: int, start: int = 0) -> None:
        assert ahead >= 1
        self.ahead, self.m = ahead, micro_batches
        self.under_way = 0
        self.next = (start, 0)
        """Subnet and micro-batch of the next forward: were one overtaken, it could wait for what waits for it."""
        self.forward: list[tuple[int, int, Task]] = []
        self.backward: list[tuple[int, int, Task]] = []

    def add(self, task: Task) -> None:
        heappush(self.forward if task.kind == "F" else self.backward, (task.seq_id, task.micro_batch, task))

    def pop(self) -> Task | None:
        if self.forward and self.under_way < self.ahead and self.forward[0][:2] == self.next:
            y, j, task = heappop(self.forward)
            self.next = (y, j + 1) if j + 1 < self.m else (y + 1, 0)
            self.under_way += 1
            return task
        if self.backward:
            self.under_way -= 1
            return heappop(self.backward)[2]
        return None


def in_flight(setting: Setting) -> int:
    """Subnets that the warm-up spans."""
    return 1 + math.ceil(max(setting.warmup or (setting.workers,)) / setting.micro_batches)


def order(worker: int, setting: Setting) -> Order:
    """Where no version is awaited, the turns are fixed: then what each forward reads depends on no time."""
    forwards = warmup_counts(setting.workers, setting.warmup)[worker]
    if not setting.asynchronous:
        return StreamOrder(forwards, setting.micro_batches, setting.start)
    # more than may be in flight would be waited for in vain
    forwards = min(forwards, (setting.in_flight - 1) * setting.micro_batches + 1)
    return FixedStream(forwards, setting.micro_batches, setting.start, setting.end)


POLICY = Policy(
    order=order,
    sync="asp:stash",
    in_flight=in_flight,
    warmed=True,
)
