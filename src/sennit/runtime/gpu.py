"""A worker on a GPU: the same worker, with slots on the device and NCCL between devices."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch

from sennit.errors import UserError
from sennit.memory.cuda import CudaStore
from sennit.memory.cuda_device import CudaDevice
from sennit.runtime.budget import with_budget
from sennit.runtime.control import Line
from sennit.runtime.dryrun import dry_run
from sennit.runtime.nccl import NcclChannel
from sennit.runtime.share import Share
from sennit.runtime.worker import Worker
from sennit.trace.access import AccessLog


def gpu_worker(
    rank: int, share: Share, lines: Mapping[int, Line], launcher: Line, log: AccessLog, rendezvous: Path
) -> Worker:
    """Worker `rank` on GPU `rank`.

    Raises:
        UserError: fewer GPUs than workers.
    """
    # Loading a kernel at its first call waits for the whole device. While a send spins there until the other GPU
    # receives, and the other waits in the same way, that would be for ever: load everything now.
    if share.placement.workers > 1:
        os.environ["CUDA_MODULE_LOADING"] = "EAGER"
    count = torch.cuda.device_count()
    if rank >= count:
        raise UserError(
            f"--workers {share.placement.workers} --device cuda needs as many GPUs, this machine has {count}; "
            "lower --workers or use --device cpu"
        )
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    if share.placement.workers > 1:
        dry_run(share.built, device)  # libraries that load parts of themselves late do it here
        torch.cuda.synchronize(device)
    store = with_budget(share, CudaStore(share.host, device, share.wandering), lambda: CudaDevice(device))
    channel = NcclChannel(rank, lines, rendezvous, device)
    return Worker(rank, share, store, channel, lines.values(), launcher, log, device)
