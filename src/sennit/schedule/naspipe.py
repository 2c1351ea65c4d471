"""NASPipe's order (ASPLOS'22, Algorithm 1): backwards first, then the earliest subnet's forward; a stage is one task.

It differs from `csp` in what a task is: a version is there once the whole stage has stepped, and the backward is in
one piece. Readiness is decided by versions, not by the paper's Algorithm 2 (see `sennit.supernet.sync`).
"""

from __future__ import annotations

from sennit.schedule.csp import CspOrder
from sennit.schedule.policy import Policy

POLICY = Policy(
    order=lambda worker, setting: CspOrder(setting.awaited),
    sync="csp",
    releases=("layer", "stage"),
    split=None,
    chunked=True,
    in_flight=lambda setting: 64,
)
