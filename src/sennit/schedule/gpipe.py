"""GPipe (Huang et al. 2019): all forwards, then all backwards.

2 stages, 3 micro-batches
worker 0  0F0 0F1 0F2  .   .  0B0 0B1 0B2
worker 1   .  1F0 1F1 1F2 1B0 1B1 1B2  .
"""

from __future__ import annotations

from sennit.schedule.action import Action
from sennit.schedule.listed import listed
from sennit.schedule.policy import Policy
from sennit.schedule.weave import weave


def gpipe(worker: int, micro_batches: int) -> list[Action]:
    """The order of one worker, which holds the stage of its own number."""
    parts = [(worker, j) for j in range(micro_batches)]
    return weave(parts, parts, micro_batches)


POLICY = Policy(order=listed(lambda worker, setting, number: gpipe(worker, number)))
