"""The fingerprint: on what hardware and software a run's bits were made.

Equal recipes give equal bits on equal fingerprints (docs/contract.md). A difference here is no error; it says
that hashes of two runs need not be equal.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy
import torch

KERNEL_VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "CUBLAS_WORKSPACE_CONFIG",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
)
"""Environment variables by which libraries choose kernels."""

_ISA = ("sse4", "avx", "fma", "f16c", "amx", "neon", "asimd", "sve", "bf16", "i8mm")


def fingerprint(device: str = "cpu") -> dict[str, Any]:
    """What bits depend on besides the recipe; JSON-safe.

    Args:
        device: `cpu`, or `cuda` for the GPUs too, which starts CUDA in this process.
    """
    model, flags = _cpu()
    found: dict[str, Any] = {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": model,
        "cpu_flags": [flag for flag in flags if flag.startswith(_ISA)],
        "cpu_kernels": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "python": ".".join(str(n) for n in sys.version_info[:3]),
        "torch": torch.__version__,
        "torch_build": hashlib.sha256(torch.__config__.show().encode()).hexdigest()[:12],
        "numpy": numpy.__version__,
        "environment": {name: os.environ[name] for name in KERNEL_VARIABLES if name in os.environ},
    }
    if device == "cuda":
        found["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        found["cuda"] = torch.version.cuda
        found["cudnn"] = torch.backends.cudnn.version()
        found["cublas"] = _cublas()
    return found


def different(one: Mapping[str, Any], two: Mapping[str, Any]) -> list[str]:
    """Where two fingerprints differ, as `key: this against that`; empty if bits are comparable. How many GPUs there are
    of each model does not count: that is placement."""
    keys = sorted({*one, *two})
    return [
        f"{key}: {one.get(key)!r} against {two.get(key)!r}"
        for key in keys
        if _told(key, one.get(key)) != _told(key, two.get(key))
    ]


def _told(key: str, value: Any) -> Any:
    """What of a value bits depend on."""
    return sorted(set(value)) if key == "gpus" and value else value


@lru_cache(maxsize=1)
def _cpu() -> tuple[str, tuple[str, ...]]:
    """Name of the processor, and its sorted flags, as Linux tells them."""
    fields: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                key, _, value = line.partition(":")
                fields.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    model = fields.get("model name") or fields.get("CPU part") or platform.processor() or "unknown"
    return model, tuple(sorted((fields.get("flags") or fields.get("Features") or "").split()))


def _cublas() -> str:
    """Version of cuBLAS, which torch does not tell; its wheel does."""
    for name in ("nvidia-cublas", f"nvidia-cublas-cu{(torch.version.cuda or '').split('.')[0]}"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return f"of CUDA {torch.version.cuda}"
