"""The state in which a step runs: its random key, autocast, kernel flags. Entered step by step.

`keyed_rng(task, j)` opens it in a plain loop; a pipeline worker opens the same object per task. A step looks
at `current()`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from sennit.supernet.generators import seed_generators
from sennit.supernet.keys import key_for, mix

PRECISIONS = ("fp32", "tf32", "bf16")


@dataclass(frozen=True)
class StepContext:
    """What every step of one micro-batch has in common.

    Attributes:
        key: key of (seed, seq id, micro-batch).
        precision: "fp32", "tf32" or "bf16" (autocast).
        device: where the steps run.
        seq_id: of the subnet; None if that is not known.
    """

    key: int
    precision: str
    device: torch.device
    seq_id: int | None = None

    @staticmethod
    def of(seed: int, seq_id: int, micro_batch: int, precision: str, device: torch.device) -> StepContext:
        return StepContext(key_for(seed, "step", seq_id, micro_batch), precision, device, seq_id)

    def enter(self, step_key: int, *, torch_only: bool = False) -> None:
        """Seed all generators for the step with this key (`name_key` of its name).

        Args:
            torch_only: the step draws with torch alone (`draws_with_torch`).
        """
        key = mix(self.key, step_key)
        if torch_only and self.device.type == "cpu":  # written out: it is done at every step
            torch.default_generator.manual_seed(key)
        else:
            seed_generators(key, self.device, torch_only=torch_only)

    def autocast(self) -> Any:
        """Autocast for one step. No cast cache: a cast of a weight must not outlive the step."""
        if self.precision != "bf16":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)


_current: list[StepContext] = []


def current() -> StepContext | None:
    return _current[-1] if _current else None


@contextmanager
def step_context(context: StepContext) -> Iterator[None]:
    _current.append(context)
    try:
        yield
    finally:
        _current.pop()


def set_kernel_flags(precision: str, *, deterministic: bool = True) -> None:
    """Choose kernels for the whole process.

    Deterministic kernels (torch, cuDNN, cuBLAS), no autotuning, TF32 only where the recipe says so, and no
    fast path of `nn.MultiheadAttention`, which in eval mode is another kernel than the exported program's.
    Memory that an operator leaves unwritten is not filled: no result may depend on it, and filling costs time.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # autograd's own thread starts without a context and gets one; torch says so in every process
    warnings.filterwarnings("ignore", "Attempting to run cuBLAS, but there was no current CUDA context")
    # as use_deterministic_algorithms, which also imports torch's compiler (two seconds)
    torch.set_deterministic_debug_mode("error" if deterministic else "default")
    setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010 - a property of the module
    torch.backends.cudnn.deterministic = deterministic
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.mha.set_fastpath_enabled(False)
