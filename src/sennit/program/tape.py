"""`Tape`: what a recording has written down so far, its steps and the numbers of the values between them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sennit.errors import SpaceError
from sennit.program.calls import place
from sennit.program.prune import refs_of
from sennit.program.refusals import FOREIGN
from sennit.program.spec import Spec
from sennit.program.step import Step
from sennit.program.template import DEVICE, ParamRef, Ref, Size, map_tree
from sennit.space.grafted import KEEPS_HOLD


class Tape:
    """Of one recording.

    Args:
        names: canonical name of each parameter and buffer, by `id`.

    Attributes:
        value_of: number of each value, by `id` of its tensor.
        paused: calls are written down at 0 only.
        owners, blocks, labels: paths of the inlined modules that run now, the outermost block, labels of choices.
        last: what was written down last, for messages.
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self.names = names
        self.steps: list[Step] = []
        self.value_of: dict[int, int] = {}
        self.n_values = 0
        self.paused = 0
        self.owners: list[str] = []
        self.blocks: list[str] = []
        self.labels: list[str] = []
        self.last = "the input"
        self._keep: list[Any] = []  # ids stay unique while the tensors live
        self._specs: dict[int, Spec] = {}
        """Of values, where it has been asked for."""
        self._shapes: dict[int, int] = {}
        """Of values, the value that is its shape."""
        self._counts: dict[str, int] = {}
        self._outside: dict[str, int] = {}
        """How often something was called outside of blocks."""
        self._own_blocks: dict[str, str] = {}
        """Of such calls that candidates precede in some archs, by name: the block, which is the same in all archs."""
        self._grad = torch.is_grad_enabled()

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Calls inside are not written down: a unit's own code, and what the recording itself computes."""
        self.paused += 1
        try:
            yield
        finally:
            self.paused -= 1

    # -- values

    def define(self, tensor: Any) -> int:
        """The number of a new value."""
        number = self.n_values
        self.n_values += 1
        self.value_of[id(tensor)] = number
        self._keep.append(tensor)
        return number

    def spec(self, number: int, tensor: Tensor) -> Spec:
        """Of value `number`, which is `tensor`."""
        spec = self._specs.get(number)
        if spec is None:
            spec = self._specs[number] = Spec.of(tensor)
        return spec

    def shape(self, number: int) -> int:
        """The value that is the shape of value `number`; a step of its own, appended when first asked for."""
        held = self._shapes.get(number)
        if held is None:
            held = self._shapes[number] = self.n_values
            self.n_values += 1
            index, name = len(self.steps), f"shape%{number}"
            self.steps.append(
                Step(index, name, "shape", "shape", (Ref(number),), {}, (number,), (held,), Ref(held),
                     block=self.block_of(name), labels=tuple(self.labels))
            )  # fmt: skip
        return held

    def template(self, tree: Any, call: str, where: str = "") -> Any:
        """`tree` with references in place of tensors, sizes and devices.

        Raises:
            SpaceError: a tensor is none of the model's, and no value.
        """

        def leaf(item: Any) -> Any:
            if isinstance(item, Tensor):
                number = self.value_of.get(id(item))
                if number is not None:
                    return Ref(number)
                name = self.names.get(id(item))
                if name is not None:
                    return ParamRef(name)
                other = KEEPS_HOLD if isinstance(item, nn.Parameter) else ""  # else it would have a name
                raise SpaceError(FOREIGN.format(where=where or place(), call=call, shape=list(item.shape)) + other)
            if isinstance(item, Size):
                return item.expr
            if isinstance(item, torch.device):
                return DEVICE
            return item

        return map_tree(leaf, tree)

    # -- steps

    def add(
        self, name: str, kind: Any, target: Any, template: Any, result: Any, where: str,
        params: tuple[str, ...], buffers: tuple[str, ...], written: tuple[str, ...], unforeseen: tuple[str, ...] = (),
    ) -> Any:  # fmt: skip
        """Append a step. Returns `result` with a fresh tensor wherever the step handed one through (identity).

        A tensor that stands in the result more than once is one value.
        """
        args, kwargs = template
        reads = refs_of(template)
        writes: list[int] = []
        copies: dict[int, Tensor] = {}

        def fresh(item: Any) -> Any:
            if isinstance(item, Tensor) and (id(item) in self.value_of or id(item) in self.names):
                return copies.setdefault(id(item), Spec.of(item).meta())
            return item

        def out(item: Any) -> Any:
            if isinstance(item, Tensor):
                known = self.value_of.get(id(item))
                if known is None:
                    known = self.define(item)
                    writes.append(known)
                return Ref(known)
            return item

        result = map_tree(fresh, result)
        out_template = map_tree(out, result)
        self.steps.append(
            Step(len(self.steps), name, kind, target, args, kwargs, reads, tuple(writes), out_template, params, buffers,
                 written, self.block_of(name), tuple(self.labels), self._without_grad(), where, unforeseen)
        )  # fmt: skip
        self.last = f"step {name!r}"
        return result

    def add_known(
        self, name: str, path: str, args: Any, spec: Spec, where: str,
        params: tuple[str, ...], buffers: tuple[str, ...], written: tuple[str, ...],
    ) -> Tensor:  # fmt: skip
        """Append the call of a unit on values alone that gives one new tensor: what `template` and `add` do, without a
        look at every leaf. A random arch runs known units in another combination, and workers wait while it is
        recorded."""
        numbers = [self.value_of[id(arg)] for arg in args]
        result = spec.meta()
        made = self.define(result)
        self._specs[made] = spec
        self.steps.append(
            Step(len(self.steps), name, "module", path, tuple(map(Ref, numbers)), {}, tuple(dict.fromkeys(numbers)),
                 (made,), Ref(made), params, buffers, written, self.block_of(name), tuple(self.labels),
                 self._without_grad(), where)
        )  # fmt: skip
        self.last = f"step {name!r}"
        return result

    def block_of(self, name: str) -> str:
        """The block of a step that is appended now."""
        return self.blocks[0] if self.blocks else self._own_blocks.get(name, name)

    def numbered(self, name: str, always: bool = False) -> str:
        """`name`, told from earlier steps of that name."""
        count = self._counts.get(name, 0)
        self._counts[name] = count + 1
        told = _told(name, count, always)
        if not self.blocks:
            outside = self._outside.get(name, 0)
            self._outside[name] = outside + 1
            if outside < count:  # a module that is a candidate, too
                self._own_blocks[told] = _told(name, outside, always)
        return told

    def _without_grad(self) -> bool:
        return self._grad and not torch.is_grad_enabled()


def _told(name: str, count: int, always: bool) -> str:
    return f"{name}#{count}" if always else f"{name}@{count}" if count else name
