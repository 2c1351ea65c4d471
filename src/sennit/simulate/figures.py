"""What a simulation found, beside its bound, as JSON values."""

from __future__ import annotations

from typing import Any

from sennit.simulate.bounds import Bounds
from sennit.simulate.outcome import Outcome


def figures(outcome: Outcome, bound: Bounds) -> dict[str, Any]:
    """Of one load: its makespan, what no order of its tasks goes below, and what binds. Times in seconds."""
    lowest = bound.makespan
    assert lowest <= outcome.makespan * (1 + 1e-9), (lowest, outcome.makespan)
    return {
        "bubble": outcome.bubble, "makespan": outcome.makespan, "bound": min(lowest, outcome.makespan),
        "bubble_at_bound": min(bound.bubble, outcome.bubble), "binds": bound.binds,
        "bounds": {
            "dependencies": bound.dependencies, "devices": bound.devices, "links": bound.links,
            "memory": bound.memory, "together": bound.together,
        },
        "peak_bytes": outcome.peak_bytes, "tasks": outcome.tasks, "subnets": outcome.subnets,
    }  # fmt: skip
