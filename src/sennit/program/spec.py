"""`Spec`: a tensor without data; and what a call returns, remembered per shapes of its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sennit.program.template import Ref, Size, leaves, map_tree


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


@dataclass(frozen=True)
class Again:
    """In a result: the tensor that stood in it as the so-manieth before."""

    number: int


def specs_of(result: Any, inputs: list[Tensor]) -> Any:
    """Shapes of a result; an input that is handed through is named by its position, a tensor that comes again, too."""
    at = {id(t): i for i, t in enumerate(inputs)}
    seen: dict[int, int] = {}

    def leaf(item: Any) -> Any:
        if not isinstance(item, Tensor):
            return item
        if id(item) in at:
            return Ref(at[id(item)])
        if id(item) in seen:
            return Again(seen[id(item)])
        seen[id(item)] = len(seen)
        return Spec.of(item)

    return map_tree(leaf, result)


def made(specs: Any, inputs: list[Tensor]) -> Any:
    """A result without data, from what `specs_of` remembered."""
    new: list[Tensor] = []

    def leaf(item: Any) -> Any:
        if isinstance(item, Spec):
            new.append(item.meta())
            return new[-1]
        if isinstance(item, Again):
            return new[item.number]
        return inputs[item.value] if isinstance(item, Ref) else item

    return map_tree(leaf, specs)


def run_with_data(module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, list[Tensor] | None]:
    """Run a unit that cannot run without data on zeros, for its result shapes, and for what it writes into.

    Returns:
        The result, and the tensors of the unit that it wrote; None for both if that fails too.
    """
    from sennit.program.copied import copied
    from sennit.program.writes import Writes, home

    try:
        real = copied(module).to_empty(device="cpu")
        with torch.no_grad():
            for tensor in [*real.parameters(), *real.buffers()]:
                tensor.zero_()
        ours = [*module.parameters(), *module.buffers()]
        writes = Writes({home(t): i for i, t in enumerate([*real.parameters(), *real.buffers()])})
        a, k = map_tree(lambda t: torch.zeros(t.shape, dtype=t.dtype) if isinstance(t, Tensor) else t, (args, kwargs))
        held, given = ([t for t in leaves(tree) if isinstance(t, Tensor)] for tree in ((a, k), (args, kwargs)))
        with writes:
            result = real(*a, **k)
        return made(specs_of(result, held), given), [ours[i] for i in writes.found]
    except Exception:
        return None, None
