"""On which GPU a worker is, and how tensors travel between workers on GPUs.

    direct  GPU ───────────────────────▶ GPU     memory of one worker's GPU is read by the other (`direct.py`)
    host    GPU ─▶ arena of the host ─▶ GPU
    auto    direct; host where the system does not let one process read another's GPU

Worker r is on GPU r mod G. Workers that share a GPU take turns at it, so a run of them shows that bits are equal, not
how fast several GPUs are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from sennit.errors import UserError
from sennit.runtime.channel import Channel
from sennit.runtime.control import Line
from sennit.runtime.direct import DirectChannel, Unreachable
from sennit.runtime.forked import in_child
from sennit.runtime.reach import Reach


def gpu_count() -> int:
    """GPUs that torch sees. CUDA is not started in this process."""
    return in_child(torch.cuda.device_count)


def channel_by(
    transport: str, rank: int, lines: Mapping[int, Line], reach: Callable[[], Reach], host: Callable[[], Channel]
) -> Channel:
    """The channel of a worker on a GPU: the same kind for all, since whether memory can be read is agreed on.

    Raises:
        UserError: `direct` is asked for and cannot be.
    """
    if transport != "host":
        try:
            return DirectChannel(rank, lines, reach())
        except Unreachable as error:
            if transport == "direct":
                raise UserError(
                    f"--transport direct lets workers read memory of one another's GPUs, which this system refuses: "
                    f"{error}. Leave it out, so that tensors pass through the host"
                ) from error
    return host()


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
