"""How tensors travel between workers on GPUs, and on which GPU a worker is.

    nccl    GPU ───────────────────────▶ GPU     each worker has a GPU of its own: NCCL refuses two on one
    host    GPU ─▶ arena of the host ─▶ GPU      worker r is on GPU r mod G, so that several may share one
    auto    nccl if there are enough GPUs, else host

Workers that share a GPU take turns at it, so a run of them shows that bits are equal, not how fast several GPUs are.
"""

from __future__ import annotations

from typing import Literal

import torch

from sennit.errors import UserError
from sennit.recipe import Placement
from sennit.runtime.forked import in_child


def gpu_count() -> int:
    """GPUs that torch sees. CUDA is not started in this process."""
    return in_child(torch.cuda.device_count)


def transport_of(placement: Placement, gpus: int) -> Literal["nccl", "host"]:
    """What the placement's transport means on a machine with so many GPUs.

    Raises:
        UserError: NCCL, and fewer GPUs than workers.
    """
    enough = placement.workers <= gpus
    if placement.transport == "nccl" and not enough:
        raise UserError(
            f"--transport nccl needs a GPU for each worker, got --workers {placement.workers} and {gpus} GPU(s); leave "
            f"it out, so that workers share a GPU and tensors pass through the host, or use --workers {gpus}"
        )
    return "nccl" if enough and placement.transport != "host" else "host"


def device_of(rank: int, gpus: int) -> torch.device:
    """The GPU of worker `rank`."""
    return torch.device("cuda", rank % gpus)


def shared_gpus(workers: int, gpus: int) -> str:
    """What to say of a run whose workers share GPUs; empty if each has its own.

    Args:
        gpus: that have workers; 0 without any.
    """
    if not 0 < gpus < workers:
        return ""
    return (
        f"{workers} workers share {gpus} GPU{'s' if gpus > 1 else ''}, so times and bubbles say nothing about "
        f"{workers} GPUs"
    )
