"""Zero bubble, first form (ZB-H1; Qi et al. 2023, section 3.1): 1F1B with weight gradients where it would wait.

    2 stages, 3 micro-batches
    worker 0  0F0 0F1  .  0I0 0W0 0F2 0I1 0W1 0I2 0W2
    worker 1   .  1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2

It holds no more activations than 1F1B. With several chunks it is torch's interleaved zero-bubble.
"""

from __future__ import annotations

from sennit.schedule.interleaved import interleaved
from sennit.schedule.listed import listed
from sennit.schedule.policy import Policy

POLICY = Policy(
    order=listed(
        lambda worker, setting, number: interleaved(worker, setting.workers, number, setting.chunks, split=True)
    ),
    split=True,
    chunked=True,
)
