"""Recording: the model's own `forward` runs once, on tensors without data, and every call is written down.

`torch.fx` cannot do this: its proxies make `if mask is not None` and `self.training` silently constant. Here
real Python runs with real control flow, twice with different batch shapes and once in eval mode
(`sennit.program.recordings`); where the runs disagree, the model is refused.

Inlined modules (section 1, rule 1) are followed: a call of a torch function becomes a step, and so does the
call of a unit module. The result shapes of a unit are remembered per input shapes, so that recording the next
arch costs the Python of the inlined code only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sennit.errors import SpaceError
from sennit.program.calls import FACTORIES, FACTS, IN_PLACE, SIZES, STATISTICS_CALLS, name_of, place
from sennit.program.failed_step import failed_step
from sennit.program.prune import refs_of, without_dead_steps
from sennit.program.refusals import FOREIGN, GIVEN_LIST, MODIFIED, NO_DATA, REBOUND, STATISTICS
from sennit.program.spec import Spec, call_key, made, run_with_data, specs_of
from sennit.program.step import Program, Step
from sennit.program.template import DEVICE, DimExpr, ParamRef, Ref, Size, boxes, contents, leaves, map_tree
from sennit.program.writes import Held, Writes
from sennit.space.choice import Choice, Option
from sennit.space.layer_choice import LayerChoice

if TYPE_CHECKING:
    from sennit.program.recorder import Recorder


class Recording(TorchFunctionMode):
    """One run of the root's forward."""

    def __init__(self, recorder: Recorder, arch: dict[str, Any], notes: bool = True) -> None:
        super().__init__()
        self.r = recorder
        self.arch = arch
        self.notes = notes
        """Whether a write that is seen for the first time is taken in as one that the unit makes."""
        self.steps: list[Step] = []
        self.value_of: dict[int, int] = {}
        self.spec_of: dict[int, Spec] = {}
        """Of values, where it has been asked for."""
        self.keep: list[Any] = []  # ids stay unique while the tensors live
        self.n_values = 0
        self.shape_value: dict[int, int] = {}
        self.opaque = 0
        self.owners: list[str] = []
        self.blocks: list[str] = []
        self.labels: list[str] = []
        self.counts: dict[str, int] = {}
        self.last: str = "the input"
        self.grad = torch.is_grad_enabled()

    # -- the run

    def run(self, inputs: Any) -> Program:
        def enter(leaf: Any) -> Any:
            if isinstance(leaf, Spec):
                tensor = leaf.meta()
                self.define(tensor)
                return tensor
            return leaf

        args, kwargs = map_tree(enter, inputs)  # the mode is not on yet
        inputs_template = self.template((args, kwargs), "the call")
        n_inputs = self.n_values
        original = nn.Module.__call__
        recording = self

        def call(module: nn.Module, *a: Any, **k: Any) -> Any:
            return recording.on_module(original, module, a, k)

        nn.Module.__call__ = call  # type: ignore[method-assign]
        try:
            with self:
                result = self.r.root(*args, **kwargs)
        finally:
            nn.Module.__call__ = original  # type: ignore[method-assign]
            replaced = self.put_back()
        if replaced:
            raise SpaceError(REBOUND.format(path="the code of an inlined module", name=replaced))
        output = self.template(result, "the result of forward")
        program = Program(self.arch, inputs_template, n_inputs, self.steps, output, refs_of(output))
        return without_dead_steps(program)

    def put_back(self) -> str:
        """Undo assignments to tensors that inlined modules hold themselves; the name of one, or nothing."""
        replaced = ""
        for owner, attribute, tensor in self.r.loose:
            table: dict[str, Any] = owner._parameters if attribute in owner._parameters else owner._buffers
            if table.get(attribute) is not tensor:
                table[attribute] = tensor
                assert tensor is not None
                replaced = self.r.names[id(tensor)]
        return replaced

    def define(self, tensor: Any) -> int:
        number = self.n_values
        self.n_values += 1
        self.value_of[id(tensor)] = number
        self.keep.append(tensor)
        return number

    # -- modules

    def on_module(self, original: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any) -> Any:
        if self.opaque:
            return original(module, *args, **kwargs)
        self.r.called.add(id(module))
        if id(module) in self.r.inlined:
            return self.inline(original, module, args, kwargs)
        path = self.r.path_of.get(id(module))
        if path is None:  # made inside forward: no name to find it by, so follow its code
            return original(module, *args, **kwargs)
        self.opaque += 1
        try:
            return self.unit(original, module, path, args, kwargs)
        finally:
            self.opaque -= 1

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Calls inside are not written down: a unit's own code, and what the recording itself computes."""
        self.opaque += 1
        try:
            yield
        finally:
            self.opaque -= 1

    def inline(self, original: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any) -> Any:
        path = self.r.path_of[id(module)]
        label = module.label if isinstance(module, Choice) else None
        self.owners.append(path)
        if label is not None:
            self.labels.append(label)
        block = isinstance(module, LayerChoice) and not self.blocks
        if block:
            self.blocks.append(self.numbered(path))
        try:
            result = original(module, *args, **kwargs)
        finally:
            self.owners.pop()
            if block:
                self.blocks.pop()
            if label is not None:
                self.labels.pop()
        if label is not None and isinstance(module, LayerChoice):
            with self.quiet():
                self.note_returned(label, module.selected(), result)
        return result

    def note_returned(self, label: str, option: Option, result: Any) -> None:
        if option in self.r.returned.setdefault(label, {}):
            return
        shapes = ", ".join(str(Spec.of(t)) for t in leaves(result) if isinstance(t, Tensor))
        self.r.returned[label][option] = shapes

    def unit(self, original: Callable[..., Any], module: nn.Module, path: str, args: Any, kwargs: Any) -> Any:
        where = place()
        called = self.as_before(module, args) if not kwargs else None
        known = self.r.answers.get(called) if called is not None else None
        if known is not None:
            return self.add_known(module, path, args, known, where)
        template = self.template((args, kwargs), path, where)
        inputs = [t for t in leaves((args, kwargs)) if isinstance(t, Tensor)]
        key = call_key(module, args, kwargs)
        known = self.r.memo.get(key) if key is not None else None
        if known is None:
            result, moved = self.first_time(original, module, path, args, kwargs, inputs, where)
            specs = specs_of(result, inputs) if key is not None else None
            if key is not None:
                self.r.memo[key] = specs, moved
        else:
            specs, moved = known
            result = made(specs, inputs)
        unforeseen = self.note_written(path, moved)
        if called is not None and isinstance(specs, Spec) and not unforeseen:
            self.r.answers[called] = specs
        params, buffers = self.unit_tensors(module)
        return self.add(
            self.numbered(path), "module", path, template, result, where, params, buffers,
            self.r.written.get(path, ()), unforeseen,
        )  # fmt: skip

    def first_time(
        self, original: Callable[..., Any], module: nn.Module, path: str, args: Any, kwargs: Any, inputs: list[Tensor],
        where: str,
    ) -> tuple[Any, tuple[str, ...]]:  # fmt: skip
        """Run a unit on such arguments. Returns its result, and the names of the buffers that its forward wrote.

        Raises:
            SpaceError: it has written what it may not, or replaced a tensor.
        """
        held, writes = Held(module, self.r.names), Writes(self.r.homes)
        told: list[Tensor] | None = None

        def call() -> Any:
            with writes:
                return original(module, *args, **kwargs)

        def with_data() -> Any:
            nonlocal told
            result, told = run_with_data(module, args, kwargs)
            return result

        given = [(box, contents(box)) for box in boxes((args, kwargs))]
        try:
            result = self.run_opaque(call, path, inputs, where, with_data)
        finally:
            replaced = held.put_back()
        for box, before in given:
            now = contents(box)
            if len(now) != len(before) or any(a is not b for a, b in zip(now, before, strict=True)):
                raise SpaceError(GIVEN_LIST.format(where=where, name=path, kind=type(box).__name__))
        seen = [*writes.found, *(self.r.names[id(tensor)] for tensor in told or ())]
        return result, held.moved(path, where, replaced, seen, all_buffers=told is not None)

    def as_before(self, module: nn.Module, args: Any) -> Any:
        """Key of a call of a unit on values of the program alone; None for other calls."""
        key: list[Any] = [id(module)]
        for arg in args:
            number = self.value_of.get(id(arg))
            if number is None:
                return None
            spec = self.spec_of.get(number)
            if spec is None:
                spec = self.spec_of[number] = Spec.of(arg)
            key.append(spec)
        return tuple(key)

    def add_known(self, module: nn.Module, path: str, args: Any, spec: Spec, where: str) -> Tensor:
        """Append a call that `as_before` knows, which gives one new tensor: what `unit` and `add` do, without a look at
        every leaf. A random arch runs known units in another combination, and workers wait while it is recorded."""
        numbers = [self.value_of[id(arg)] for arg in args]
        result = spec.meta()
        made = self.define(result)
        self.spec_of[made] = spec
        params, buffers = self.unit_tensors(module)
        name = self.numbered(path)
        self.steps.append(
            Step(len(self.steps), name, "module", path, tuple(map(Ref, numbers)), {}, tuple(dict.fromkeys(numbers)),
                 (made,), Ref(made), params, buffers, self.r.written.get(path, ()), self.block_of(name),
                 tuple(self.labels), self.grad and not torch.is_grad_enabled(), where)
        )  # fmt: skip
        self.last = f"step {name!r}"
        return result

    def note_written(self, path: str, moved: tuple[str, ...]) -> tuple[str, ...]:
        """Take in which buffers a unit's forward wrote. Returns those that are new, if they come too late."""
        known = self.r.written.get(path, ())
        new = tuple(name for name in moved if name not in known)
        if new and self.notes:
            self.r.written[path] = (*known, *new)
            return ()
        return new

    def unit_tensors(self, module: nn.Module) -> tuple[tuple[str, ...], tuple[str, ...]]:
        known = self.r.param_memo.get(id(module))
        if known is None:
            params = dict.fromkeys(self.r.names[id(p)] for p in module.parameters())
            buffers = dict.fromkeys(self.r.names[id(b)] for b in module.buffers())
            known = self.r.param_memo[id(module)] = (tuple(params), tuple(buffers))
        return known

    # -- functions

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.opaque:
            return func(*args, **kwargs)
        name = name_of(func)
        if name in SIZES:
            return self.sizes(func, name, args, kwargs)
        if name in FACTS or name.startswith("_is_") or name == "_set_grad_enabled":
            return func(*args, **kwargs)
        where = place()
        inputs = [t for t in leaves((args, kwargs)) if isinstance(t, Tensor)]
        if name in FACTORIES and not inputs and kwargs.get("device") is None:
            kwargs = {**kwargs, "device": torch.device("meta")}
        if name in IN_PLACE:
            raise SpaceError(MODIFIED.format(where=where, call=name))
        template = self.template((args, kwargs), name, where)
        if name in STATISTICS_CALLS and any(isinstance(t, ParamRef) for t in leaves(template[0][1:3])):
            raise SpaceError(STATISTICS.format(where=where, call=name))
        key = call_key(func, args, kwargs)
        known = self.r.memo.get(key) if key is not None else None
        if known is not None:
            result = made(known, inputs)
        else:
            result = self.run_opaque(lambda: func(*args, **kwargs), name, inputs, where)
            if key is not None:
                self.r.memo[key] = specs_of(result, inputs)
        if not any(isinstance(t, Tensor) for t in leaves(result)):
            raise SpaceError(NO_DATA.format(where=where, call=name))
        owner = self.owners[-1] if self.owners else ""
        params = tuple(dict.fromkeys(t.name for t in leaves(template) if isinstance(t, ParamRef)))
        is_param = {self.r.names[id(t)] for t in inputs if isinstance(t, nn.Parameter)}
        step_name = self.numbered(f"{owner}:{name}" if owner else f":{name}", always=True)
        return self.add(
            step_name, "call", func, template, result, where,
            tuple(p for p in params if p in is_param), tuple(p for p in params if p not in is_param), (),
        )  # fmt: skip

    def sizes(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """`x.shape` and its kin return sizes that know where they come from."""
        tensor = args[0]
        number = self.value_of.get(id(tensor))
        if number is None or not isinstance(tensor, Tensor):  # a parameter's shape is fixed
            return func(*args, **kwargs)
        held = self.shape_value.get(number)
        if held is None:
            held = self.n_values
            self.n_values += 1
            self.shape_value[number] = held
            index = len(self.steps)
            self.steps.append(
                Step(index, f"shape%{number}", "shape", "shape", (Ref(number),), {}, (number,), (held,), Ref(held),
                     block=self.block_of(f"shape%{number}"), labels=tuple(self.labels))
            )  # fmt: skip
        shape = [Size(n, DimExpr(held, axis)) for axis, n in enumerate(tensor.shape)]
        if name == "shape":
            return torch.Size(shape)
        if name == "size":
            axis = args[1] if len(args) > 1 else kwargs.get("dim")
            return torch.Size(shape) if axis is None else shape[axis]
        if name == "__len__":
            return shape[0]
        total: int = 1
        for n in shape:
            total = n * total
        return total

    def run_opaque(
        self, call: Callable[[], Any], name: str, inputs: list[Tensor], where: str,
        with_data: Callable[[], Any] | None = None,
    ) -> Any:  # fmt: skip
        """Call without looking inside.

        Args:
            with_data: gives the result where there can be none without data; None if it cannot, either.
        """
        versions = [t._version for t in inputs]
        try:
            with self.quiet():
                result = call()
        except SpaceError:
            raise
        except Exception as error:
            if with_data is not None and isinstance(error, NotImplementedError | RuntimeError | ValueError):
                again = with_data()
                if again is not None:
                    return again
            told = failed_step(name, inputs, where, error, self.last, self.arch, self.r.returned)
            raise SpaceError(told) from error
        if [t._version for t in inputs] != versions:
            raise SpaceError(MODIFIED.format(where=where, call=name))
        return result

    # -- bookkeeping

    def template(self, tree: Any, call: str, where: str = "") -> Any:
        def leaf(item: Any) -> Any:
            if isinstance(item, Tensor):
                number = self.value_of.get(id(item))
                if number is not None:
                    return Ref(number)
                name = self.r.names.get(id(item))
                if name is not None:
                    return ParamRef(name)
                raise SpaceError(FOREIGN.format(where=where or place(), call=call, shape=list(item.shape)))
            if isinstance(item, Size):
                return item.expr
            if isinstance(item, torch.device):
                return DEVICE
            return item

        return map_tree(leaf, tree)

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
            if isinstance(item, Tensor) and (id(item) in self.value_of or id(item) in self.r.names):
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
                 written, self.block_of(name), tuple(self.labels), self.grad and not torch.is_grad_enabled(), where,
                 unforeseen)
        )  # fmt: skip
        self.last = f"step {name!r}"
        return result

    def block_of(self, name: str) -> str:
        return self.blocks[0] if self.blocks else name

    def numbered(self, name: str, always: bool = False) -> str:
        count = self.counts.get(name, 0)
        self.counts[name] = count + 1
        return f"{name}#{count}" if always else f"{name}@{count}" if count else name
