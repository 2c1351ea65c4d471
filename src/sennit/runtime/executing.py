"""Which executor computes the tasks of a worker."""

from __future__ import annotations

from typing import Any

from sennit.executor.capture import Capturing, CudaGraphs
from sennit.executor.eager import EagerExecutor
from sennit.executor.graphs import GraphExecutor
from sennit.executor.instances import Instances
from sennit.executor.virtual import VirtualExecutor
from sennit.runtime.budget import may_come
from sennit.runtime.share import Share


def executor_for(rank: int, share: Share, eager: EagerExecutor) -> Any:
    """What computes tasks: one of the executors, whose methods are those of `EagerExecutor`."""
    if share.waits is not None:
        return VirtualExecutor(share.waits)
    capturing = share.parts.capturing or (CudaGraphs if share.placement.executor == "graphs" else None)
    if capturing is None:
        return eager
    device = capturing(eager.device)
    return GraphExecutor(eager, device, instances=_instances(rank, share, device), splits=share.placement.split)


def _instances(rank: int, share: Share, device: Capturing) -> Instances | None:
    """Room for what graphs keep; workers that share a GPU share what is free there."""
    placement = share.placement
    if placement.activations != "keep":
        return None
    sharing = -(-placement.workers // max(share.gpus, 1))
    one_version = share.recipe.sync_rule.kind != "asp"  # there micro-batches read whatever is there
    if placement.activations_bytes:
        return Instances(device.room, placement.activations_bytes, sharing, one_version)
    to_come = may_come(rank, share.built, share.plans, share.host)
    if placement.budget:
        to_come = min(to_come, placement.budget_bytes)
    return Instances(device.room, None, sharing, one_version, to_come=to_come)
