"""`NcclChannel` without GPUs: its messages go through Gloo, and what it says to CUDA is left out."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from sennit.runtime import gpu, nccl
from tests.runtime.host_gpu import stand_in


class Received:
    """A receive of which nobody knows that it has arrived before somebody waits for it, as Gloo has them."""

    def __init__(self, work: Any) -> None:
        self.work = work

    def is_completed(self) -> bool:
        return False

    def wait(self) -> None:
        self.work.wait()


def through_gloo(patch: pytest.MonkeyPatch, gpus: int) -> None:
    """Let workers that this process forks take the host for GPUs between which NCCL carries tensors."""
    stand_in(patch, gpus)

    def begin(backend: str, *, store: Any, rank: int, world_size: int, device_id: Any) -> None:
        assert backend == "nccl"
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)

    patch.setattr(
        nccl, "dist",
        SimpleNamespace(
            FileStore=dist.FileStore, init_process_group=begin, new_group=dist.new_group, send=dist.send,  # pyright: ignore[reportPrivateImportUsage]
            recv=dist.recv, isend=dist.isend, irecv=lambda *args, **more: Received(dist.irecv(*args, **more)),
            destroy_process_group=dist.destroy_process_group,
        ),
    )  # fmt: skip
    patch.setattr(torch.cuda, "Stream", lambda device: None)
    patch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    patch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    patch.setattr(gpu, "dry_run", lambda built, device: None)
    patch.setattr(Tensor, "record_stream", lambda tensor, stream: None)
