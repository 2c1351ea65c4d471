"""`Spec`: a tensor without data; and what a call returns, remembered per shapes of its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sennit.program.template import Ref, Size, map_tree


@dataclass(frozen=True)
class Spec:
    """Shape and dtype of a tensor without data."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @staticmethod
    def of(tensor: Tensor) -> Spec:
        return Spec(tuple(int(n) for n in tensor.shape), tensor.dtype)

    def meta(self) -> Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device="meta")

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


def call_key(called: Any, args: Any, kwargs: Any) -> Any:
    """Key of a call's result shapes, or None where an argument cannot be part of a key."""
    items: list[Any] = [id(called) if isinstance(called, nn.Module) else called]

    def leaf(item: Any) -> Any:
        if isinstance(item, Tensor):
            items.append(Spec.of(item))
        else:  # the type too: 2 == 2.0 == True for a dict, but not for a tensor's dtype
            items.append((int, int(item)) if isinstance(item, Size) else (type(item), item))
        return None

    shape = map_tree(leaf, (args, kwargs))
    items.append(repr(shape))
    key = tuple(items)
    try:
        hash(key)
    except TypeError:
        return None
    return key


def specs_of(result: Any, inputs: list[Tensor]) -> Any:
    """Shapes of a result; an input that is handed through is named by its position."""
    at = {id(t): i for i, t in enumerate(inputs)}
    return map_tree(lambda t: (Ref(at[id(t)]) if id(t) in at else Spec.of(t)) if isinstance(t, Tensor) else t, result)


def made(specs: Any, inputs: list[Tensor]) -> Any:
    """A result without data, from what `specs_of` remembered."""
    return map_tree(lambda s: s.meta() if isinstance(s, Spec) else inputs[s.value] if isinstance(s, Ref) else s, specs)


def run_with_data(module: nn.Module, args: Any, kwargs: Any) -> Any:
    """Run a unit that cannot run without data on zeros, for its result shapes only. None if that fails too."""
    import copy

    try:
        real = copy.deepcopy(module).to_empty(device="cpu")
        with torch.no_grad():
            for tensor in [*real.parameters(), *real.buffers()]:
                tensor.zero_()
        a, k = map_tree(lambda t: torch.zeros(t.shape, dtype=t.dtype) if isinstance(t, Tensor) else t, (args, kwargs))
        result = real(*a, **k)
        return map_tree(lambda t: Spec.of(t).meta() if isinstance(t, Tensor) else t, result)
    except Exception:
        return None
