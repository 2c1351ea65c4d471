"""Totally asynchronous (AutoPipe, ICPP'24, section 5, calls it TAP): whatever is ready runs, and weights are not kept.

Backwards first, then the earliest subnet's forward. A forward waits for no version, and a backward uses the weights as
they are by then: fast, and the result depends on everything.
"""

from __future__ import annotations

import math

from sennit.schedule.csp import CspOrder
from sennit.schedule.policy import Policy

POLICY = Policy(
    order=lambda worker, setting: CspOrder(setting.awaited),
    sync="asp:none",
    rules=("asp",),
    releases=("layer", "stage"),
    split=None,
    chunked=True,
    in_flight=lambda setting: 1 + math.ceil(setting.workers / setting.micro_batches),
)
