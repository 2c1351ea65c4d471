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
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.overrides import TorchFunctionMode

from sennit.errors import SpaceError
from sennit.program.step import Program, Step
from sennit.program.template import DEVICE, DimExpr, ParamRef, Ref, Size, leaves, map_tree, shapes_in
from sennit.space.choice import Choice, Option, selecting
from sennit.space.inline import is_inlined, loose_tensors
from sennit.space.layer_choice import LayerChoice

_FACTORIES = frozenset(
    "arange zeros ones empty full rand randn randint randperm linspace logspace eye tensor tril_indices "
    "triu_indices".split()
)
_IN_PLACE = frozenset(
    "__setitem__ __iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __imod__ __ipow__ __iand__ __ior__ __ixor__ "
    "__ilshift__ __irshift__ __delitem__".split()
)
_OWN_FRAMES = (
    "torch",
    "sennit.program",
    *(f"sennit.space.{n}" for n in "choice layer_choice input_choice repeat".split()),
)
_STATISTICS = frozenset({"batch_norm", "instance_norm"})
_SIZES = frozenset({"shape", "size", "numel", "__len__"})
_FACTS = frozenset(
    "dtype device layout dim ndim is_floating_point is_complex is_cuda requires_grad is_contiguous stride is_sparse "
    "get_device is_meta element_size itemsize nelement names is_nested is_quantized is_leaf grad_fn storage_offset "
    "is_inference is_conj is_neg is_signed _version __repr__ __format__".split()
)

NO_DATA = """{where}: `{call}` needs the numbers inside a tensor, which differ from batch to batch, so the program
of this arch would not be fixed. Write it so that tensors decide:
    wrong:  if x.sum() > 0: x = x * 2
    right:  x = torch.where(x.sum() > 0, x * 2, x)
or put the code into a module of its own without choices inside: such a module is one step and may do as it likes."""

FOREIGN = """{where}: `{call}` uses a tensor of shape {shape} that is neither an input, nor a parameter or buffer of the
model, nor computed from these. Register it, so that every worker has it:
    wrong:  self.mask = torch.ones(8)
    right:  self.register_buffer("mask", torch.ones(8))"""

STATISTICS = """{where}: `{call}` in inlined code updates running statistics, which no recording can see. Use a
module, which is one step and owns its statistics:
    wrong:  F.batch_norm(x, self.mean, self.var, training=self.training)
    right:  self.norm = nn.BatchNorm1d(width)    ...    self.norm(x)"""

MODIFIED = """{where}: `{call}` modifies a tensor that came in (in-place). The step before may still need it. Write
    wrong:  x += y          nn.ReLU(inplace=True)
    right:  x = x + y       nn.ReLU()"""

REBOUND = """{path} replaces its {name!r} by another tensor in forward. Write into it, so that it stays where every
worker finds it, in a module of its own without choices inside (one step):
    wrong:  self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
    right:  self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)"""

_lock = threading.RLock()


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


class Recorder:
    """Records programs of one space.

    Args:
        skeleton: the space on device `meta`. Not changed, apart from flags that are put back.
        names: canonical name of each parameter and buffer, by `id` of the skeleton's tensor.
    """

    def __init__(self, skeleton: nn.Module, names: dict[int, str]) -> None:
        self.root = skeleton
        self.names = names
        self.written: dict[str, tuple[str, ...]] = {}
        """Names of the buffers that a unit's forward writes in training mode, by unit path; seen by version."""
        self.path_of: dict[int, str] = {}
        for path, module in skeleton.named_modules():
            self.path_of.setdefault(id(module), path)
        self.inlined_modules = [m for m in skeleton.modules() if is_inlined(m, skeleton)]
        self.inlined = {id(m) for m in self.inlined_modules}
        self.loose = [
            (owner, attribute, owner._parameters.get(attribute, owner._buffers.get(attribute)))
            for _, owner, attribute in loose_tensors(skeleton)
        ]
        self.called: set[int] = set()
        """`id` of every module that some recording has called."""
        self.memo: dict[Any, Any] = {}
        self.param_memo: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self.returned: dict[str, dict[Option, str]] = {}
        """What each option of a choice returned, for messages about shapes that do not fit."""

    @contextlib.contextmanager
    def mode(self, training: bool) -> Iterator[None]:
        """Inlined modules see `self.training == training`."""
        before = [m.training for m in self.inlined_modules]
        for module in self.inlined_modules:
            module.training = training
        try:
            yield
        finally:
            for module, flag in zip(self.inlined_modules, before, strict=True):
                module.training = flag

    def record(
        self, arch: dict[str, Any], options: dict[str, Option], inputs: Any, *, training: bool = True
    ) -> Program:
        """Run the root on `inputs` (`(args, kwargs)` with a `Spec` for every tensor) and write down its steps.

        Raises:
            SpaceError: what cannot be recorded, with file and line; a candidate whose shapes do not fit.
        """
        with _lock, self.mode(training), selecting(options):
            return _Recording(self, arch).run(inputs)


class _Recording(TorchFunctionMode):
    """One run of the root's forward."""

    def __init__(self, recorder: Recorder, arch: dict[str, Any]) -> None:
        super().__init__()
        self.r = recorder
        self.arch = arch
        self.steps: list[Step] = []
        self.value_of: dict[int, int] = {}
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
        program = Program(self.arch, inputs_template, n_inputs, self.steps, output, _refs(output))
        return _without_dead_steps(program)

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
        with self.quiet():
            return self.unit(original, module, path, args, kwargs)

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
        shapes = ", ".join(str(Spec.of(t)) for t in leaves(result) if isinstance(t, Tensor))
        self.r.returned.setdefault(label, {})[option] = shapes

    def unit(self, original: Callable[..., Any], module: nn.Module, path: str, args: Any, kwargs: Any) -> Any:
        where = _where()
        template = self.template((args, kwargs), path, where)
        inputs = [t for t in leaves((args, kwargs)) if isinstance(t, Tensor)]
        key = _memo_key(module, args, kwargs)
        specs = self.r.memo.get(key) if key is not None else None
        if specs is None:
            versions = {name: (b, b._version) for name, b in module.named_buffers()}
            result = self.run_opaque(
                lambda: original(module, *args, **kwargs), path, inputs, where, module, args, kwargs
            )
            self.note_written(path, module, versions)
            if key is not None:
                self.r.memo[key] = _specs(result, inputs)
        else:
            result = _made(specs, inputs)
        params, buffers = self.unit_tensors(module)
        return self.add(
            self.numbered(path), "module", path, template, result, where, params, buffers, self.r.written.get(path, ())
        )

    def note_written(self, path: str, module: nn.Module, before: dict[str, tuple[Tensor, int]]) -> None:
        """Which buffers the forward wrote. A buffer that was replaced instead of written in place is refused."""
        written = dict.fromkeys(self.r.written.get(path, ()))
        for prefix, owner in module.named_modules():
            own = [(f"{prefix}.{name}" if prefix else name, b) for name, b in owner.named_buffers(recurse=False)]
            for name, buffer in own:
                if name in before and before[name][0] is not buffer:
                    raise SpaceError(REBOUND.format(path=f"step {path!r}", name=name))
            # without data some kernels (batch_norm) skip the write, so one written buffer speaks for its owner's others
            statistics = isinstance(owner, _NormBase) and owner.track_running_stats
            if statistics or any(b._version != before.get(name, (b, -1))[1] for name, b in own):
                written.update(dict.fromkeys(self.r.names[id(b)] for _, b in own))
        self.r.written[path] = tuple(written)

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
        name = _name(func)
        if name in _SIZES:
            return self.sizes(func, name, args, kwargs)
        if name in _FACTS or name.startswith("_is_") or name == "_set_grad_enabled":
            return func(*args, **kwargs)
        where = _where()
        inputs = [t for t in leaves((args, kwargs)) if isinstance(t, Tensor)]
        if name in _FACTORIES and not inputs and kwargs.get("device") is None:
            kwargs = {**kwargs, "device": torch.device("meta")}
        if name in _IN_PLACE:
            raise SpaceError(MODIFIED.format(where=where, call=name))
        template = self.template((args, kwargs), name, where)
        if name in _STATISTICS and any(isinstance(t, ParamRef) for t in leaves(template[0][1:3])):
            raise SpaceError(STATISTICS.format(where=where, call=name))
        key = _memo_key(func, args, kwargs)
        known = self.r.memo.get(key) if key is not None else None
        if known is not None:
            result = _made(known, inputs)
        else:
            result = self.run_opaque(lambda: func(*args, **kwargs), name, inputs, where)
            if key is not None:
                self.r.memo[key] = _specs(result, inputs)
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
        module: nn.Module | None = None, args: Any = (), kwargs: Any = None,
    ) -> Any:  # fmt: skip
        versions = [t._version for t in inputs]
        try:
            with self.quiet():
                result = call()
        except SpaceError:
            raise
        except Exception as error:
            if module is not None and isinstance(error, NotImplementedError | RuntimeError | ValueError):
                again = _with_data(module, args, kwargs)
                if again is not None:
                    return again
            raise SpaceError(self.explain(name, inputs, where, error)) from error
        if [t._version for t in inputs] != versions:
            raise SpaceError(MODIFIED.format(where=where, call=name))
        return result

    def explain(self, name: str, inputs: list[Tensor], where: str, error: Exception) -> str:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if "meta" in reason and any(word in reason.lower() for word in ("item", "data", "boolean", "numpy")):
            return NO_DATA.format(where=where, call=name)
        lines = [
            f"{where}: step {name!r} failed on {', '.join(str(Spec.of(t)) for t in inputs) or 'no tensors'}: {reason}",
            f"  it got its input from {self.last}; arch: {self.arch}",
        ]
        for label, options in self.r.returned.items():
            if len(set(options.values())) > 1:
                shown = "; ".join(f"{option!r} returns {shapes}" for option, shapes in list(options.items())[:6])
                lines.append(f"  candidates of {label!r} return different shapes: {shown}")
        lines.append("  every candidate must take what its place is given and return what the next step takes")
        return "\n".join(lines[:12])

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
                raise SpaceError(FOREIGN.format(where=where or _where(), call=call, shape=list(item.shape)))
            if isinstance(item, Size):
                return item.expr
            if isinstance(item, torch.device):
                return DEVICE
            return item

        return map_tree(leaf, tree)

    def add(
        self, name: str, kind: Any, target: Any, template: Any, result: Any, where: str,
        params: tuple[str, ...], buffers: tuple[str, ...], written: tuple[str, ...],
    ) -> Any:  # fmt: skip
        """Append a step. Returns `result` with a fresh tensor wherever the step handed one through (identity)."""
        args, kwargs = template
        reads = _refs(template)
        writes: list[int] = []

        def fresh(item: Any) -> Any:
            if isinstance(item, Tensor) and (id(item) in self.value_of or id(item) in self.r.names):
                return Spec.of(item).meta()
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
                 written, self.block_of(name), tuple(self.labels), self.grad and not torch.is_grad_enabled(), where)
        )  # fmt: skip
        self.last = f"step {name!r}"
        return result

    def block_of(self, name: str) -> str:
        return self.blocks[0] if self.blocks else name

    def numbered(self, name: str, always: bool = False) -> str:
        count = self.counts.get(name, 0)
        self.counts[name] = count + 1
        return f"{name}#{count}" if always else f"{name}@{count}" if count else name


def _refs(template: Any) -> tuple[int, ...]:
    found: dict[int, None] = {}
    for leaf in leaves(template):
        if isinstance(leaf, Ref):
            found[leaf.value] = None
        else:
            for number in shapes_in(leaf):
                found[number] = None
    return tuple(found)


def _name(func: Any) -> str:
    name = getattr(func, "__name__", str(func))
    if name in ("__get__", "__set__"):
        return getattr(getattr(func, "__self__", None), "__name__", name)
    return name


def _where() -> str:
    """file:line of the innermost frame that belongs to neither torch nor sennit's own recording."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(_OWN_FRAMES) and name != "contextlib":
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "unknown place"


def _memo_key(called: Any, args: Any, kwargs: Any) -> Any:
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


def _specs(result: Any, inputs: list[Tensor]) -> Any:
    """Shapes of a result; an input that is handed through is named by its position."""
    at = {id(t): i for i, t in enumerate(inputs)}
    return map_tree(lambda t: (Ref(at[id(t)]) if id(t) in at else Spec.of(t)) if isinstance(t, Tensor) else t, result)


def _made(specs: Any, inputs: list[Tensor]) -> Any:
    """A result without data, from what `_specs` remembered."""
    return map_tree(lambda s: s.meta() if isinstance(s, Spec) else inputs[s.value] if isinstance(s, Ref) else s, specs)


def _with_data(module: nn.Module, args: Any, kwargs: Any) -> Any:
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


def _without_dead_steps(program: Program) -> Program:
    """Drop steps whose results nobody uses, and from the arch the choices that only such steps depend on."""
    needed = set(program.outputs)
    alive: list[Step] = []
    for step in reversed(program.steps):
        if needed.intersection(step.writes):
            alive.append(step)
            needed.update(step.reads)
    if len(alive) == len(program.steps):
        return program
    alive.reverse()
    living = {label for step in alive for label in step.labels}
    dead = {label for step in program.steps for label in step.labels} - living
    arch = {label: value for label, value in program.arch.items() if label not in dead}
    for index, step in enumerate(alive):
        step.index = index
    return Program(arch, program.inputs, program.n_inputs, alive, program.output, program.outputs)
