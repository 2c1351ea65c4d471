"""Writing and reading one safetensors file of named tensors.

The library's own `save_file` holds a second copy of all tensors in memory and refuses views of one block,
which is what a store hands out. This writer takes one tensor at a time, and hashes what it writes on the way.

    8 bytes: length of the header │ header: JSON, padded with spaces to 8 │ tensors, largest elements first

Format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.complex64: "C64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}
"""Names of dtypes in the format."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> tuple[int, str]:
    """Write a new file and force it to disk.

    Args:
        tensors: by name; any device, any strides, scalars and empty ones too.

    Returns:
        Its size in bytes, and its SHA-256.

    Raises:
        OSError: as the system says it, for instance no room.
    """
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in names:
        tensor = tensors[name]
        start, end = end, end + tensor.numel() * tensor.dtype.itemsize
        header[name] = {
            "dtype": DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    head = struct.pack("<Q", len(text)) + text
    digest = hashlib.sha256(head)
    with path.open("xb") as file:
        file.write(head)
        for name in names:
            if tensors[name].numel():
                raw = raw_bytes(tensors[name])
                digest.update(raw)
                file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    return len(head) + end, digest.hexdigest()


def raw_bytes(tensor: Tensor) -> memoryview:
    """The elements of a non-empty tensor in row-major order, without a copy where they lie so already."""
    data = tensor.detach().to("cpu").contiguous()
    return data.reshape(-1).view(torch.uint8).numpy().data


class TensorFile(Mapping[str, Tensor]):
    """The tensors of a safetensors file by name, each read when asked for, as a new tensor on the CPU."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: Any = safe_open(path, framework="pt")
        self.names = tuple(sorted(self.file.keys()))
        self._known = frozenset(self.names)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._known:
            raise KeyError(name)
        return self.file.get_tensor(name).clone()  # of its own: aligned, writable, not tied to the file

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)
