"""`Setting`: all that the order of a worker may know beforehand. The simulator and the workers fill in the same one.

Fixed orders go in *rounds*: as many subnets as share one list of actions. A round is a bulk, or less if fewer subnets
may be in flight:

    bulk of 8, 3 in flight     subnets 0 1 2 | 3 4 5 | 6 7 || 8 9 10 | ...
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from sennit.schedule.chains import Chains


def _no_end() -> float:
    return math.inf


def _nobody_waits(seq_id: int, run: int) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Of one run.

    Attributes:
        workers: D.
        micro_batches: M of each subnet.
        chunks: stretches of the network per worker, where a policy knows several.
        bulk: subnets between two steps of the weights; 1 unless the rule is bulk-wise.
        in_flight: most unfinished subnets.
        warmup: for each worker, forwards under way, where a policy asks; None for its own.
        asynchronous: whether forwards wait for no version.
        split: backward in halves, where a policy leaves it open.
        start: the first subnet; with bulks the first of one.
        end: the first subnet that does not come. Less where a run ends early, else it must not change.
        awaited: whether a subnet in flight waits for what (subnet, run) will write.
        chains: of the subnets in flight, for policies that ask.
    """

    workers: int
    micro_batches: int
    chunks: int = 1
    bulk: int = 1
    in_flight: int = 1
    warmup: tuple[int, ...] | None = None
    asynchronous: bool = False
    split: bool = False
    start: int = 0
    end: Callable[[], float] = _no_end
    awaited: Callable[[int, int], bool] = _nobody_waits
    chains: Chains | None = None

    @property
    def round(self) -> int:
        """Subnets per round."""
        return min(self.bulk, self.in_flight)

    def number(self, seq_id: int, micro_batch: int) -> int:
        """Index of a micro-batch in its round."""
        return seq_id % self.bulk % self.round * self.micro_batches + micro_batch
