"""What `result.json` holds of a run that has ended well: hashes, and figures of its last call."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sennit.runtime.facts import Facts
from sennit.runtime.segment import Engine
from sennit.supernet.hashes import hash_tensors, losses_hash


def summary(
    facts: Facts, engine: Engine, losses: Sequence[float], start: int, seconds: float, began: float,
    evaluation: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Of a call.

    Args:
        losses: of all subnets, by seq id.
        start: the call's first subnet.
        seconds: between cuts, in which subnets ran.
        began: when the call did, by `time.time`.
        evaluation: the last one, if any.
    """
    virtual, placement = facts.virtual, facts.request.placement
    ran = len(losses) - start
    busy = engine.busy
    result: dict[str, Any] = {
        "steps": len(losses),
        "first": start,
        "weights_sha256": None if virtual else hash_tensors(engine.hashed_weights()),
        "optimizer_sha256": None if virtual else hash_tensors(engine.optimizer_state()),
        "losses_sha256": None if virtual else losses_hash(losses),
        "subnets_per_s": ran / seconds if seconds else None,
        "bubble": None if facts.request.engine == "plain" or not seconds else 1.0 - busy / (engine.workers * seconds),
        "workers": engine.workers,
        "replicas": placement.replicas,
        "engine": facts.request.engine,
        "seconds": time.time() - began,
        "last_loss": losses[-1] if losses and not virtual else None,
        "comparable": facts.comparable,
    }
    if placement.device == "cuda":
        result["gpus"] = min(engine.workers, len(facts.fingerprint["gpus"]))
    result.update(engine.figures())
    if evaluation:
        result["evaluation"] = {k: evaluation[k] for k in ("mean", "best") if k in evaluation}
    if (counted := engine.counted) is not None:
        result["slots"] = {**asdict(counted), **counted.rates()}
    return result
