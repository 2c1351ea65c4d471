"""A worker on a GPU: the same worker, with slots on the device, and NCCL or the host's memory between devices."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch

from sennit.errors import UserError
from sennit.memory.cuda import CudaStore
from sennit.memory.cuda_device import CudaDevice
from sennit.runtime.budget import with_budget
from sennit.runtime.channel import Arena, Channel, SharedMemoryChannel
from sennit.runtime.control import Line
from sennit.runtime.dryrun import dry_run
from sennit.runtime.nccl import NcclChannel
from sennit.runtime.passing import Passing, passes
from sennit.runtime.share import Share
from sennit.runtime.transport import device_of, transport_of
from sennit.runtime.worker import Worker
from sennit.trace.access import AccessLog


def gpu_worker(
    rank: int, share: Share, lines: Mapping[int, Line], arenas: list[Arena], launcher: Line, log: AccessLog,
    rendezvous: Path,
) -> Worker:  # fmt: skip
    """Worker `rank` on its GPU.

    Args:
        arenas: of every worker, for a channel through the host.
        rendezvous: a file that all workers of the run see, for NCCL.

    Raises:
        UserError: a GPU that takes no second process.
    """
    nccl = transport_of(share.placement, share.gpus) == "nccl"
    # Loading a kernel at its first call waits for the whole device. While a send of NCCL spins there until the other
    # GPU receives, and the other waits in the same way, that would be for ever: load everything now.
    spins = nccl and share.placement.workers > 1
    if spins:
        os.environ["CUDA_MODULE_LOADING"] = "EAGER"
        # Streams beyond this number share a queue, in which a kernel may stand behind a send that waits for a worker
        # that waits for that kernel. Each edge between two workers is a stream.
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    device = device_of(rank, share.gpus)
    _take(device, rank, share)
    if spins:
        dry_run(share.built, device)  # libraries that load parts of themselves late do it here
        torch.cuda.synchronize(device)
    kept = CudaStore(share.host, device, share.wandering)
    if kept.unpinned:
        launcher.send(("unpinned", kept.unpinned))
    store = with_budget(rank, share, kept, lambda: CudaDevice(device, kept.pinned))
    channel: Channel
    if nccl:
        channel = NcclChannel(rank, lines, rendezvous, device)
    else:
        channel = SharedMemoryChannel(rank, lines, arenas, CudaDevice(device, pinned=False))  # arenas never are
    worker = Worker(rank, share, store, channel, lines.values(), launcher, log, device)
    if isinstance(channel, NcclChannel) and not share.placement.budget and passes(share.readers):
        worker.passing, channel.parts = Passing(rank, share, store, worker.send), True
    return worker


def _take(device: torch.device, rank: int, share: Share) -> None:
    """Start CUDA on a device.

    Raises:
        UserError: other workers are there, and it takes one process only or has no room for another.
    """
    try:
        torch.cuda.set_device(device)
        torch.zeros(1, device=device)
    except RuntimeError as error:
        if share.placement.workers <= share.gpus:
            raise
        raise UserError(
            f"worker {rank} cannot share GPU {device.index} with others: {str(error).splitlines()[0][:200]}. A GPU in "
            "compute mode EXCLUSIVE_PROCESS takes one process (`nvidia-smi -q -d COMPUTE` shows it, `nvidia-smi -c "
            f"DEFAULT` changes it); else use --workers {share.gpus}"
        ) from error
