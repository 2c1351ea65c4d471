"""Recording: the model's own `forward` runs once, on tensors without data, and every call is written down.

`torch.fx` cannot do this: its proxies make `if mask is not None` and `self.training` silently constant. Here
real Python runs with real control flow, twice with different batch shapes and once in eval mode
(`sennit.program.recordings`); where the runs disagree, the model is refused.

Inlined modules (section 1, rule 1) are followed: a call of a torch function becomes a step, and so does the
call of a unit module.

    call of an inlined module ─▶ its code is followed
    call of a unit module     ─▶ `UnitCalls` ─┐
    call of a torch function  ────────────────┴─▶ a step on the `Tape`
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sennit.errors import SpaceError
from sennit.program.calls import FACTORIES, FACTS, IN_PLACE, SIZES, STATISTICS_CALLS, name_of, place
from sennit.program.forwards import refuse_call, refuse_keys, refuse_result
from sennit.program.opaque import Opaque
from sennit.program.prune import refs_of, without_dead_steps
from sennit.program.refusals import MODIFIED, NO_DATA, REBOUND, STATISTICS, UNREGISTERED
from sennit.program.spec import Spec, call_key, made, specs_of
from sennit.program.step import Program
from sennit.program.tape import Tape
from sennit.program.template import DimExpr, ParamRef, Size, leaves, map_tree
from sennit.program.unit_calls import UnitCalls
from sennit.space.choice import Choice, Option
from sennit.space.layer_choice import LayerChoice

if TYPE_CHECKING:
    from sennit.program.recorder import Recorder


class Recording(TorchFunctionMode):
    """One run of the root's forward.

    Args:
        notes: a write that is seen for the first time is taken in as one that the unit makes.
    """

    def __init__(self, recorder: Recorder, arch: dict[str, Any], notes: bool = True) -> None:
        super().__init__()
        self.r = recorder
        self.arch = arch
        self.tape = Tape(recorder.names)
        self.opaque = Opaque(self.tape, arch, recorder.returned)
        self.units = UnitCalls(recorder, self.tape, self.opaque, notes)

    # -- the run

    def run(self, inputs: Any) -> Program:
        def enter(leaf: Any) -> Any:
            if isinstance(leaf, Spec):
                tensor = leaf.meta()
                self.tape.define(tensor)
                return tensor
            return leaf

        refuse_keys(inputs[1])
        args, kwargs = map_tree(enter, inputs)  # the mode is not on yet
        inputs_template = self.tape.template((args, kwargs), "the call")
        n_inputs = self.tape.n_values
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
        refuse_result(self.r.root, result, self.arch)
        output = self.tape.template(result, "the result of forward")
        program = Program(self.arch, inputs_template, n_inputs, self.tape.steps, output, refs_of(output))
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

    # -- modules

    def on_module(self, original: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any) -> Any:
        if isinstance(module, Choice) and id(module) not in self.r.inlined:
            raise SpaceError(UNREGISTERED.format(where=place(), kind=type(module).__name__))
        if self.tape.paused:
            return original(module, *args, **kwargs)
        self.r.called.add(id(module))
        if id(module) in self.r.inlined:
            return self.inline(original, module, args, kwargs)
        path = self.r.path_of.get(id(module))
        if path is None:  # made inside forward: no name to find it by, so follow its code
            return original(module, *args, **kwargs)
        self.tape.paused += 1
        try:
            return self.units.add(original, module, path, args, kwargs)
        finally:
            self.tape.paused -= 1

    def inline(self, original: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any) -> Any:
        tape = self.tape
        path = self.r.path_of[id(module)]
        label = module.label if isinstance(module, Choice) else None
        tape.owners.append(path)
        if label is not None:
            tape.labels.append(label)
        block = isinstance(module, LayerChoice) and not tape.blocks
        if block:
            tape.blocks.append(tape.numbered(path))
        try:
            result = original(module, *args, **kwargs)
        except (TypeError, NotImplementedError):
            refuse_call(module, args, kwargs, is_root=module is self.r.root and len(tape.owners) == 1)
            raise
        finally:
            tape.owners.pop()
            if block:
                tape.blocks.pop()
            if label is not None:
                tape.labels.pop()
        if label is not None and isinstance(module, LayerChoice):
            with tape.quiet():
                self.note_returned(label, module.selected(), result)
        return result

    def note_returned(self, label: str, option: Option, result: Any) -> None:
        if option in self.r.returned.setdefault(label, {}):
            return
        shapes = ", ".join(str(Spec.of(t)) for t in leaves(result) if isinstance(t, Tensor))
        self.r.returned[label][option] = shapes

    # -- functions

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.tape.paused:
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
        template = self.tape.template((args, kwargs), name, where)
        if name in STATISTICS_CALLS and any(isinstance(t, ParamRef) for t in leaves(template[0][1:3])):
            raise SpaceError(STATISTICS.format(where=where, call=name))
        key = call_key(func, args, kwargs)
        known = self.r.memo.get(key) if key is not None else None
        if known is not None:
            result = made(known, inputs)
        else:
            result = self.opaque.call(lambda: func(*args, **kwargs), name, inputs, where)
            if key is not None:
                self.r.memo[key] = specs_of(result, inputs)
        if not any(isinstance(t, Tensor) for t in leaves(result)):
            raise SpaceError(NO_DATA.format(where=where, call=name))
        owner = self.tape.owners[-1] if self.tape.owners else ""
        params = tuple(dict.fromkeys(t.name for t in leaves(template) if isinstance(t, ParamRef)))
        is_param = {self.r.names[id(t)] for t in inputs if isinstance(t, nn.Parameter)}
        step_name = self.tape.numbered(f"{owner}:{name}" if owner else f":{name}", always=True)
        return self.tape.add(
            step_name, "call", func, template, result, where,
            tuple(p for p in params if p in is_param), tuple(p for p in params if p not in is_param), (),
        )  # fmt: skip

    def sizes(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """`x.shape` and its kin return sizes that know where they come from."""
        tensor = args[0]
        number = self.tape.value_of.get(id(tensor))
        if number is None or not isinstance(tensor, Tensor):  # a parameter's shape is fixed
            return func(*args, **kwargs)
        held = self.tape.shape(number)
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
