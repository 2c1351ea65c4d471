"""SHA-256 of parameters, buffers, optimizer state and losses: what "the same bits" means.

A hash is taken over sorted lines `name dtype [shape] sha256(bytes)`, joined by newlines (docs/files.md).
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn

from sennit.space.names import non_persistent, unique_tensors
from sennit.supernet.optim import delayed_of, parameter_names

MANY = 1 << 28
"""Bytes that take long enough (a second is some GB) to start threads for."""


def tensor_line(name: str, tensor: Tensor) -> str:
    """`name float32 [2,3] hex`; bytes little-endian in logical (row-major) order."""
    data = tensor.detach().to("cpu").contiguous()
    raw = data.reshape(-1).view(torch.uint8).numpy().data if data.numel() else b""
    shape = ",".join(str(n) for n in data.shape)
    return f"{name} {str(data.dtype).removeprefix('torch.')} [{shape}] {hashlib.sha256(raw).hexdigest()}"


def hash_tensors(tensors: Mapping[str, Tensor] | list[tuple[str, Tensor]]) -> str:
    """Hex digest over the lines of all tensors, sorted. Many bytes are hashed by several threads."""
    pairs = list(_pairs(tensors))
    if sum(tensor.nbytes for _, tensor in pairs) < MANY:
        lines = [tensor_line(name, tensor) for name, tensor in pairs]
    else:
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
            lines = list(threads.map(lambda pair: tensor_line(*pair), pairs))
    lines.sort()
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _pairs(tensors: Mapping[str, Tensor] | list[tuple[str, Tensor]]) -> Iterable[tuple[str, Tensor]]:
    return tensors if isinstance(tensors, list) else tensors.items()


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers, each storage once under its canonical name."""
    hidden = non_persistent(model)
    return {name: t for name, t in unique_tensors(model).items() if name not in hidden}


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """`parameter.key` to state tensor, for parameters that have stepped, and what a delayed step holds back."""
    names = parameter_names(optimizer)
    found: dict[str, Tensor] = {}
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, Tensor):
                found[f"{names[id(parameter)]}.{key}"] = value
    delayed = delayed_of(optimizer)
    if delayed is not None:
        for seq_id, grads in delayed.pending:
            found.update({f"{name}.pending.{seq_id}": g for name, g in grads.items() if g is not None})
    return found


def state_hash(holder: nn.Module | torch.optim.Optimizer) -> str:
    """Hash of a model (`weights_sha256`) or of an optimizer built by `Recipe.build_optimizer` (`optimizer_sha256`)."""
    return hash_tensors(model_tensors(holder) if isinstance(holder, nn.Module) else optimizer_tensors(holder))


def losses_hash(losses: Iterable[float]) -> str:
    """Hash of per-subnet losses in order of seq id, as little-endian float32."""
    values = list(losses)
    return hashlib.sha256(struct.pack(f"<{len(values)}f", *values)).hexdigest()
