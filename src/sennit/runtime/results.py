"""`Results`: what workers say of losses becomes results in order of seq id, from which the stream of a learning sampler
is drawn.

    losses of micro-batches, from any worker ─▶ a subnet's result ─▶ in order ─▶ `on_result`
                                                       └─▶ feed ─▶ `draw`
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sennit.errors import NanLossError
from sennit.supernet.samplers import Feed, Result
from sennit.supernet.task import fold_losses


class Results:
    """Of one run.

    Args:
        start: the first subnet.
        feed: of a learning sampler; None if workers draw for themselves.
        on_result: told each subnet's result, in order of seq id.

    Attributes:
        next: the subnet whose result is told next.
    """

    def __init__(self, start: int, micro_batches: int, feed: Feed | None, on_result: Callable[[Result], None]) -> None:
        self.next = self.next_drawn = start
        self.micro_batches, self.feed, self.on_result = micro_batches, feed, on_result
        self.losses: dict[int, dict[int, float]] = {}
        """Of subnets that still miss some: what workers have said, by micro-batch."""
        self.early: dict[int, Result] = {}

    def add(self, seq_id: int, arch: dict[str, Any], some: Mapping[int, float]) -> None:
        """Losses of some micro-batches of a subnet."""
        losses = self.losses.setdefault(seq_id, {})
        losses.update(some)
        if len(losses) < self.micro_batches:
            return
        del self.losses[seq_id]
        result = Result(seq_id, arch, fold_losses([losses[j] for j in sorted(losses)]))
        if not math.isfinite(result.loss):
            return  # said as "nan" already
        self.early[result.seq_id] = result
        if self.feed is not None:
            self.feed.report(result)
        while self.next in self.early:
            self.on_result(self.early.pop(self.next))
            self.next += 1

    def not_finite(self, seq_id: int, micro_batch: int, value: float, unseen: Sequence[int]) -> NanLossError:
        """What to halt with for a loss that a worker has found not finite.

        Args:
            unseen: micro-batches before it whose losses that worker does not have; nobody may compute them any more.
        """
        known = self.losses.get(seq_id, {})
        missing = sum(j not in known for j in unseen)
        said = f"the loss of subnet {seq_id} is {value} in micro-batch {micro_batch}"
        if missing:
            said += f", maybe not the first: {missing} before it {'was' if missing == 1 else 'were'} not waited for"
        return NanLossError(said, seq_id, micro_batch)

    def draw(self, limit: int, in_flight: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Subnets below `limit` that can be drawn by now, as far ahead as anybody has use for."""
        if self.feed is None:
            return
        ahead = self.next + max(in_flight, 1) + self.feed.lag
        while self.next_drawn < min(limit, ahead) and self.feed.ready():
            yield self.next_drawn, self.feed.draw()
            self.next_drawn += 1
