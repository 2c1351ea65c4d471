"""`trace`: a frozen network as a `torch.export` program, for any batch size where that is possible."""

from __future__ import annotations

import inspect
import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from sennit.errors import RunError
from sennit.explore.frozen import FrozenNetwork
from sennit.program.template import leaves, map_tree
from sennit.space.model_space import as_call

ROWS = 8
"""Rows to trace with; the program takes other numbers too, and fewer are traced faster."""


@dataclass(frozen=True)
class Traced:
    """An exported program and what inputs it takes.

    Attributes:
        program: of `torch.export`, on the device of the network.
        inputs: per tensor, in order, its name, dtype and shape; an axis that may vary is None.
        note: why the batch size is fixed; None if it is not.
    """

    program: ExportedProgram
    inputs: list[tuple[str, str, list[int | None]]]
    note: str | None

    def takes(self, x: Any) -> bool:
        """Whether an input of these shapes can be given."""
        tensors = _tensors(x)
        return len(tensors) == len(self.inputs) and all(
            len(shape) == t.dim() and all(n is None or n == m for n, m in zip(shape, t.shape, strict=True))
            for t, (_, _, shape) in zip(tensors, self.inputs, strict=True)
        )


def trace(network: FrozenNetwork, inputs: Sequence[Any]) -> Traced:
    """Export `network` as it is, in eval mode and on its device.

    The first axis of every tensor may vary, and so may the axes whose sizes differ between the inputs. What
    torch cannot keep variable becomes fixed to the size in the first input.

    Args:
        inputs: inputs x of the network, all that it will be checked on.

    Raises:
        RunError: torch.export refuses the network.
    """
    varying = _varying(inputs)
    example = _example(inputs, varying)
    try:
        program, reason = _export(network, example, varying), None
    except Exception as error:  # torch raises many kinds here
        program, reason = None, (str(error).strip() or type(error).__name__).splitlines()[0]
    if program is not None and _batch_varies(program):
        return Traced(program, _shapes(program), None)
    try:
        program = _export(network, inputs[0], [set() for _ in varying])
    except Exception as error:
        raise RunError(f"torch.export refuses this network: {str(error).strip()[:500]}") from error
    rows = [t.shape[0] for t in _tensors(inputs[0]) if t.dim()]
    note = f"the batch size is fixed at {rows[0] if rows else 'one input'}"
    return Traced(program, _shapes(program), f"{note}: {reason or 'a step needs the size itself'}")


def save(program: ExportedProgram, path: Path) -> None:
    """Write the program without example inputs and without the file names of the code it came from."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                node.meta.pop("stack_trace", None)
    program._example_inputs = None
    held = io.BytesIO()  # torch's own writer ends the process where the disk is full
    torch.export.save(program, held)
    path.write_bytes(held.getbuffer())


def load(path: Path) -> nn.Module:
    """The program in a file as a module, on the device that it was made for."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given buffer is not writable")  # torch 2.11: its own reading of weights
        return torch.export.load(path).module()


def _export(network: FrozenNetwork, x: Any, varying: list[set[int]]) -> ExportedProgram:
    args, kwargs = as_call(x)
    axes = iter(varying)

    def dims(leaf: Any) -> Any:
        return dict.fromkeys(next(axes), Dim.AUTO) if isinstance(leaf, Tensor) else None

    shapes = map_tree(dims, dict(zip(_names(network, x), [*args, *kwargs.values()], strict=True)))
    with torch.no_grad(), _signed(network, list(shapes)):
        program = torch.export.export(network, args, kwargs, dynamic_shapes=shapes, strict=False)
        return _with_plain_casts(program)


def _with_plain_casts(program: ExportedProgram) -> ExportedProgram:
    """Parts under autocast as operators with casts between them: torch 2.11 cannot read such parts from a file."""
    if not any("autocast" in str(node.target) for node in program.graph.nodes if node.op == "call_function"):
        return program
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own use of what it deprecates
        return program.run_decompositions({})


def _names(network: FrozenNetwork, x: Any) -> list[str]:
    """A name for each argument of the call."""
    args, kwargs = as_call(x)
    given = list(network._frozen_names[: len(args)])
    return [*given, *(f"input_{i}" for i in range(len(given), len(args))), *kwargs]


@contextmanager
def _signed(network: FrozenNetwork, names: Sequence[str]) -> Iterator[None]:
    """Give `network.forward` arguments by name: torch.export fails on `**kwargs` of varying shapes."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        return FrozenNetwork.forward(network, *args, **kwargs)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    forward.__signature__ = signature  # type: ignore[attr-defined]
    network.__dict__["forward"] = forward
    try:
        yield
    finally:
        del network.__dict__["forward"]


def _tensors(x: Any) -> list[Tensor]:
    return [leaf for leaf in leaves(as_call(x)) if isinstance(leaf, Tensor)]


def _varying(inputs: Sequence[Any]) -> list[set[int]]:
    """Per tensor, the axes that may vary."""
    found = []
    for same in zip(*[_tensors(x) for x in inputs], strict=True):
        axes = range(same[0].dim())
        tokens = not same[0].is_floating_point()  # numbers of words: sequences of any length
        found.append({a for a in axes if a == 0 or tokens or len({t.shape[a] for t in same}) > 1})
    return found


def _example(inputs: Sequence[Any], varying: list[set[int]]) -> Any:
    """The input to trace with. A size of 0 or 1 would become fixed, so there are two rows at least."""

    def smallest(x: Any) -> int:
        sizes = [t.shape[a] for t, axes in zip(_tensors(x), varying, strict=True) for a in axes if a]
        return min(sizes, default=0)

    x = max(inputs, key=smallest)
    rows = next((t.shape[0] for t in _tensors(x) if t.dim()), 0)
    wanted = max(2, min(rows, ROWS))

    def resized(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.dim() or leaf.shape[0] != rows:
            return leaf
        return leaf.repeat(-(-wanted // rows), *[1] * (leaf.dim() - 1))[:wanted].clone()

    return map_tree(resized, x)


def _placeholders(program: ExportedProgram) -> dict[str, Tensor]:
    """The tensors that the program is called with, in order, without data."""
    given = set(program.graph_signature.user_inputs)
    nodes = [n for n in program.graph.nodes if n.op == "placeholder" and n.name in given]
    return {n.name: n.meta["val"] for n in nodes if isinstance(n.meta.get("val"), Tensor)}


def _batch_varies(program: ExportedProgram) -> bool:
    tensors = [t for t in _placeholders(program).values() if t.dim()]
    return bool(tensors) and any(_size(t.shape[0]) is None for t in tensors)


def _shapes(program: ExportedProgram) -> list[tuple[str, str, list[int | None]]]:
    return [
        (name, str(tensor.dtype).removeprefix("torch."), [_size(n) for n in tensor.shape])
        for name, tensor in _placeholders(program).items()
    ]


def _size(n: Any) -> int | None:
    """A size of a traced tensor; None if it may vary. A symbol that was tied to one number is that number."""
    if isinstance(n, torch.SymInt) and not n.node.expr.is_number:
        return None
    return int(n)
