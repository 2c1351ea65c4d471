"""A worker on a GPU: the same worker, with slots on the device, and a way from device to device."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from sennit.errors import UserError
from sennit.memory.cuda import CudaStore
from sennit.memory.cuda_device import CudaDevice
from sennit.runtime.budget import with_budget
from sennit.runtime.channel import Arena, SharedMemoryChannel
from sennit.runtime.control import Line
from sennit.runtime.direct import DirectChannel
from sennit.runtime.passing import Passing, passes
from sennit.runtime.reach import CudaReach
from sennit.runtime.share import Share
from sennit.runtime.transport import channel_by, device_of
from sennit.runtime.worker import Worker
from sennit.trace.access import AccessLog


def gpu_worker(
    rank: int, share: Share, lines: Mapping[int, Line], arenas: list[Arena], launcher: Line, log: AccessLog
) -> Worker:  # fmt: skip
    """Worker `rank` on its GPU.

    Args:
        arenas: of every worker, for a channel through the host.

    Raises:
        UserError: a GPU that takes no second process, or whose memory others cannot read though they are to.
    """
    device = device_of(rank, share.gpus)
    _take(device, rank, share)
    kept = CudaStore(share.host, device, share.wandering, lambda pinned: CudaDevice(device, pinned))
    if kept.unpinned:
        launcher.send(("unpinned", kept.unpinned))
    store = with_budget(rank, share, kept, lambda: kept.copies)
    channel = channel_by(
        share.placement.transport, rank, lines, lambda: CudaReach(device),
        lambda: SharedMemoryChannel(rank, lines, arenas, CudaDevice(device, pinned=False)),  # arenas never are
    )  # fmt: skip
    worker = Worker(rank, share, store, channel, lines.values(), launcher, log, device)
    if isinstance(channel, DirectChannel) and not share.placement.budget and passes(share.readers):
        worker.passing = Passing(rank, share, store, worker.send)
        worker.slots.horizon = 0  # what the next forwards read comes without being fetched
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
