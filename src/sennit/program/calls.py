"""Torch functions as a recording sees them: by name, in kinds, and where they are called from."""

from __future__ import annotations

import sys
from typing import Any

FACTORIES = frozenset(
    "arange zeros ones empty full rand randn randint randperm linspace logspace eye tensor tril_indices "
    "triu_indices".split()
)
IN_PLACE = frozenset(
    "__setitem__ __iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __imod__ __ipow__ __iand__ __ior__ __ixor__ "
    "__ilshift__ __irshift__ __delitem__".split()
)
_OWN_FRAMES = (
    "torch",
    "sennit.program",
    *(f"sennit.space.{n}" for n in "choice layer_choice input_choice repeat model_space".split()),
)
STATISTICS_CALLS = frozenset({"batch_norm", "instance_norm"})
SIZES = frozenset({"shape", "size", "numel", "__len__"})
FACTS = frozenset(
    "dtype device layout dim ndim is_floating_point is_complex is_cuda requires_grad is_contiguous stride is_sparse "
    "get_device is_meta element_size itemsize nelement names is_nested is_quantized is_leaf grad_fn storage_offset "
    "is_inference is_conj is_neg is_signed _version __repr__ __format__".split()
)


def name_of(func: Any) -> str:
    name = getattr(func, "__name__", str(func))
    if name in ("__get__", "__set__"):
        return getattr(getattr(func, "__self__", None), "__name__", name)
    return name


def place() -> str:
    """file:line of the innermost frame that belongs to neither torch nor sennit's own recording."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(_OWN_FRAMES) and name != "contextlib":
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "unknown place"
