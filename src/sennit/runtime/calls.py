"""What the calls of a run have counted. In `result.json` figures are of the last call; those of the calls before it are
under `earlier`.

    subnets   0 ── call 1 ── 17 ── call 2, killed ── 30 ── call 3 ── 40
                   earlier         not known               `first` = 30, `seconds`, `slots`, ...
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from sennit.runtime.batches import LOADING
from sennit.trace.events import Trace
from sennit.trace.perfetto import MOST_SPANS

OF_CALL = (
    "first", "steps", "subnets_per_s", "bubble", "workers", "replicas", "engine", "seconds", "slots", "hosts", "graphs",
    "gpus", "pinned", "tasks_run_again", "loading_s",
)  # fmt: skip
"""Keys of `result.json` that tell of one call, of subnets `first` to `steps` - 1."""

GRAPHS = {"replayed steps": "replayed_steps", "eager steps": "eager_steps", "graphs": "captured"}
"""Counter of a trace to key under `graphs`."""

KEPT = {"kept steps": "kept_steps"}
"""The same, only there with `--activations keep`."""


def earlier_calls(path: Path, start: int) -> list[dict[str, Any]]:
    """Of the calls before this one, those that ended by themselves and whose subnets are still there, in order.

    Args:
        path: `result.json` as the last of them left it. What cannot be read is left out: nothing depends on it.
        start: the first subnet of this call.
    """
    try:
        held = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, ValueError, RecursionError):
        return []
    earlier = held.get("earlier")
    calls = [*(earlier if isinstance(earlier, list) else []), {key: held[key] for key in OF_CALL if key in held}]
    found: list[dict[str, Any]] = []
    for call in calls:
        if _whole(call) and (found[-1]["steps"] if found else 0) <= call["first"] < call["steps"] <= start:
            found.append(call)
    return found


def _whole(call: Any) -> bool:
    if not isinstance(call, dict) or any(type(call.get(key)) is not int for key in ("first", "steps")):
        return False
    try:
        json.dumps(call, allow_nan=False)
    except ValueError:
        return False
    return True


def loading_of(trace: Trace) -> float | None:
    """Seconds for which workers loaded batches or waited for loaders, all together; None if that is not known."""
    found = [c.value for c in trace.counters if c.counter == LOADING]
    if not found or len(trace.counters) >= MOST_SPANS or not all(map(math.isfinite, found)):
        return None
    return sum(found)


def graphs_of(trace: Trace) -> Mapping[str, int] | None:
    """What became of the steps of a call under `--executor graphs`, all workers together; None if that is not known."""
    keys = {**GRAPHS, **KEPT}
    found = dict.fromkeys(GRAPHS.values(), 0)
    counted = [c for c in trace.counters if c.counter in keys]
    if len(trace.counters) >= MOST_SPANS or not all(math.isfinite(c.value) for c in counted):
        return None  # counters before these were not read, or what was read is damaged
    for c in counted:
        found[keys[c.counter]] = found.get(keys[c.counter], 0) + int(c.value)
    return found if counted else None
