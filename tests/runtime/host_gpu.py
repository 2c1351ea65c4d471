"""GPUs that are memory of the host: `--device cuda` goes its whole way without one, with copies that come late."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sennit.memory import cuda
from sennit.runtime import facts, gpu, pipeline, refuse
from sennit.runtime.fingerprint import fingerprint
from tests.memory.late import LateDevice
from tests.runtime.host_reach import HostReach


def stand_in(patch: pytest.MonkeyPatch, gpus: int = 1) -> None:
    """Let this process, and workers that it forks, take the host for so many GPUs."""

    def told(device: str = "cpu") -> dict[str, Any]:
        return {**fingerprint(), "gpus": ["memory of the host"] * gpus}

    for module in (refuse, pipeline):
        patch.setattr(module, "gpu_count", lambda: gpus)
    patch.setattr(refuse, "dry_run", lambda *arguments: None)  # it would start CUDA
    patch.setattr(facts, "fingerprint", told)
    patch.setattr(gpu, "device_of", lambda rank, gpus: torch.device("cpu"))
    patch.setattr(gpu, "_take", lambda device, rank, share: None)
    patch.setattr(gpu, "CudaReach", HostReach)
    patch.setattr(gpu, "CudaDevice", lambda device, pinned: LateDevice())
    patch.setattr(cuda, "pin", lambda memory, device: "memory of the host")
    patch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(synchronize=lambda: None))
    patch.setattr(torch.cuda, "max_memory_allocated", lambda device: 0)
    patch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
