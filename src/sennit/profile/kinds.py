"""Kinds of steps: steps that cost the same, so that one measurement serves all of them.

A supernet has thousands of candidates and a few kinds of layers: 48 blocks of 72 candidates in `nlp.c1` are 8 kinds at
some shapes. Two steps are of one kind if they call the same thing with the same settings on inputs and parameters of
the same shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from sennit.program.step import Step

PLAIN = (int, float, bool, str, type(None), tuple)
"""Types of a module's attributes that are its settings."""


def kind_of(step: Step, module: nn.Module | None, like: Callable[[str], Tensor], values: Mapping[int, Any]) -> str:
    """What decides the cost of a step, as a text.

    Args:
        module: of a module step.
        like: a tensor of the shape of a parameter or buffer, by name.
        values: what the step reads, by number.
    """
    read = [shape_of(values[n]) for n in step.reads]
    held = [(*like(name).shape, str(like(name).dtype)) for name in (*step.params, *step.buffers)]
    what = settings(module) if module is not None else (step.call, repr(step.args), repr(step.kwargs))
    return repr((step.kind, what, read, held, step.no_grad))


def settings(module: nn.Module) -> list[Any]:
    """Class and plain attributes of a module and of those in it. `repr` alone leaves out what `extra_repr` does."""
    found: list[Any] = []
    for name, inner in module.named_modules():
        plain = {k: v for k, v in vars(inner).items() if not k.startswith("_") and isinstance(v, PLAIN)}
        kind = f"{type(inner).__module__}.{type(inner).__qualname__}"
        found.append((name, kind, sorted(plain.items()), inner.extra_repr()))
    return found


def shape_of(value: Any) -> Any:
    """Shape and type of a tensor; other values as they are."""
    return (tuple(value.shape), str(value.dtype)) if isinstance(value, Tensor) else value
