"""`Recordings`: the programs of a space, each checked by recording it more than once.

An arch with an option that has not been seen yet is recorded on two batches of different shape and once in eval
mode. A size that Python has turned into a plain number, a loop over the batch, or `if self.training:` shows as a
difference and is refused. An arch of known options runs the same code in another combination and is recorded once.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from sennit.errors import SpaceError
from sennit.program.recorder import Recorder
from sennit.program.spec import Spec
from sennit.program.step import Program, Step
from sennit.program.template import ModeConst, leaves, map_tree
from sennit.space.choice import Choice
from sennit.space.names import canonical_names
from sennit.space.structure import Structure

SHAPE_BOUND = """{where}: `{call}` was recorded differently for two batches of different shape ({why}).
Sizes must be read from the tensor where they are used, and no loop may run over the batch:
    wrong:  n = int(x.shape[0]);  x.view(n, -1)        for row in x: ...
    right:  x.view(x.shape[0], -1)                      one operation on the whole batch
or put the code into a module of its own without choices inside (one step)."""

MODE_BOUND = """{where}: `{call}` was recorded differently in training and in eval mode ({why}).
`if self.training:` around inlined code gives two programs. Put the difference into a module of its own without
choices inside (it is one step and may look at self.training), or pass self.training to the function."""


UNCALLED = """{what} is run by no arch: no forward calls it. Call it, or leave it out of the space."""


def spec_of(tree: Any) -> Any:
    """`tree` with a `Spec` in place of every tensor."""
    return map_tree(lambda t: Spec.of(t) if isinstance(t, Tensor) else t, tree)


def other_batch(inputs: Any) -> Any:
    """`inputs` (specs) with one row more: the same first dimension grows in every tensor."""

    def grow(leaf: Any) -> Any:
        if isinstance(leaf, Spec) and leaf.shape:
            return replace(leaf, shape=(leaf.shape[0] + 1, *leaf.shape[1:]))
        return leaf

    return map_tree(grow, inputs)


KEPT = 512
"""Programs that are kept: more than are in flight or evaluated at once."""


LATEST = 64
"""Calls that are answered without a look at the arch."""


class Recordings:
    """Programs by canonical arch.

    Args:
        space: the model space; a copy without data is taken, the space itself is left alone.
    """

    def __init__(self, space: nn.Module) -> None:
        self.skeleton = _meta_copy(space).train()
        self.structure = Structure(self.skeleton)
        self.recorder = Recorder(self.skeleton, canonical_names(self.skeleton))
        self._programs: OrderedDict[str, Program] = OrderedDict()
        """Those asked for last, at most `KEPT`; a stream of random archs hardly ever asks for one again."""
        self._latest: dict[Any, Program] = {}
        """The few that were asked for last, by what was asked: a plain loop asks once per micro-batch."""
        self._shapes: set[Any] = set()
        self._options: set[tuple[str, Any]] = set()
        self._flags: dict[str, tuple[Any, Any]] = {}
        """Arguments of steps that follow `self.training`, by name of the step."""

    def program(self, arch: Any, inputs: Any, other: Any = None) -> Program:
        """The program of `arch`, recorded unless it is still known.

        Args:
            arch: any dict that `Structure.parse` accepts.
            inputs: `(args, kwargs)` of the call with a `Spec` for each tensor.
            other: the same with other shapes; one more row if None.

        Raises:
            SpaceError: what cannot be recorded, or is not the same program in every recording.
        """
        asked = _key_of(arch, inputs)
        program = self._latest.get(asked)
        if program is None:
            program = self._looked_up(arch, inputs, other)
            self._asked_last(asked, program)
        return program

    def once(self, arch: Any, inputs: Any) -> tuple[str, Program] | None:
        """One recording of an arch, and the key of its program, for `put` in the process that this one was forked from.

        Returns:
            None for an option or a shape that has not been seen: it takes more than one recording.

        Raises:
            SpaceError: as `program`.
        """
        options, filled = self.structure.parse_filled(arch)
        canonical = self.structure.encode(options)
        if _trailing(inputs) not in self._shapes or not self._options.issuperset(options.items()):
            return None
        program = self.recorder.record(canonical, options, inputs)
        self._refuse_filled(filled, program)
        return _known_as(canonical, inputs), program

    def put(self, arch: Any, inputs: Any, key: str, program: Program) -> None:
        """Keep what `once` has given in a process forked from this one, as if recorded here.

        What recordings in both modes and of new shapes have shown since the fork is put in.
        """
        known = self._programs.get(key)
        if known is None:
            known = self._keep(key, self._with_what_is_known(program))
        self._asked_last(_key_of(arch, inputs), known)

    def _asked_last(self, asked: Any, program: Program) -> None:
        if asked is not None:
            self._latest[asked] = program
            if len(self._latest) > LATEST:
                del self._latest[next(iter(self._latest))]

    def _looked_up(self, arch: Any, inputs: Any, other: Any) -> Program:
        options, filled = self.structure.parse_filled(arch)
        canonical = self.structure.encode(options)
        key = _known_as(canonical, inputs)
        known = self._programs.get(key)
        if known is not None:
            self._programs.move_to_end(key)
        trailing = _trailing(inputs)
        if known is not None and trailing in self._shapes:
            return known
        record = self.recorder.record
        program = record(canonical, options, inputs)
        unseen = [item for item in options.items() if item not in self._options]
        if known is None and not unseen and trailing in self._shapes:
            self._refuse_filled(filled, program)
            return self._keep(key, self._with_what_is_known(program))
        self._options.update(unseen)
        _same(program, record(canonical, options, other_batch(inputs) if other is None else other), SHAPE_BOUND)
        program = _with_mode(program, record(canonical, options, inputs, training=False))
        calls = [step for step in program.steps if step.kind == "call" and _has_flag(step)]
        self._flags.update({step.name: (step.args, step.kwargs) for step in calls})
        if known is not None:  # a shape that no recording has seen: the known program must fit it as well
            _same(known, program, SHAPE_BOUND)
        else:
            self._refuse_filled(filled, program)
            known = self._keep(key, program)
        self._shapes.add(trailing)
        return known

    def _keep(self, key: str, program: Program) -> Program:
        self._programs[key] = program
        if len(self._programs) > KEPT:
            self._programs.popitem(last=False)
        return program

    def _refuse_filled(self, filled: tuple[str, ...], program: Program) -> None:
        for label in filled:
            if label in program.arch:
                raise self.structure.missing(label)

    def _with_what_is_known(self, program: Program) -> Program:
        """Mode-dependent flags put in where a recording in both modes has shown them; buffers that units write, too."""
        before = list(program.steps)
        for i, step in enumerate(before):
            if step.kind == "call" and step.name in self._flags:
                merged = _merge_flags((step.args, step.kwargs), self._flags[step.name])
                program.steps[i] = replace(step, args=merged[0], kwargs=merged[1])
            elif step.kind == "module" and (now := self.recorder.written.get(step.target, ())) != step.written:
                program.steps[i] = replace(step, written=now)
        if any(step is not was for step, was in zip(program.steps, before, strict=True)):
            program.note_entries()
        return program

    def refuse_uncalled(self) -> None:
        """Call this once archs that cover the space are recorded.

        Raises:
            SpaceError: a choice or a candidate that no recording has called: it would never be trained.
        """
        called = self.recorder.called
        for path, module in self.skeleton.named_modules():
            if not isinstance(module, Choice):
                continue
            if id(module) not in called:
                raise SpaceError(UNCALLED.format(what=f"the choice at {path!r}"))
            for name, candidate in module.named_children():
                if id(candidate) not in called:
                    raise SpaceError(UNCALLED.format(what=f"candidate {name!r} of the choice at {path!r}"))


def _key_of(arch: Any, inputs: Any) -> Any:
    """A key of a call whose arch holds numbers and words and whose arguments are tensors; None for others."""
    args, kwargs = inputs
    given = (*args, *kwargs.values())
    if not all(type(leaf) is Spec for leaf in given) or not isinstance(arch, dict):
        return None
    items = cast("dict[Any, Any]", arch).items()
    if not all(type(value) in (int, str) for _, value in items):
        return None
    return tuple(items), args, tuple(kwargs.items())


def _known_as(canonical: Any, inputs: Any) -> str:
    """The key of an arch's program, whatever the shapes of the tensors."""
    return repr((canonical, map_tree(lambda s: "tensor" if isinstance(s, Spec) else s, inputs)))


def _trailing(inputs: Any) -> str:
    """What decides whether a recording has seen these shapes."""
    return repr(map_tree(lambda s: (s.shape[1:], s.dtype) if isinstance(s, Spec) else s, inputs))


def _has_flag(step: Step) -> bool:
    return any(isinstance(leaf, ModeConst) for leaf in leaves((step.args, step.kwargs)))


def _meta_copy(space: nn.Module) -> nn.Module:
    if all(t.is_meta for t in [*space.parameters(), *space.buffers()]):
        return copy.deepcopy(space)
    with torch.no_grad():
        memo: dict[int, Any] = {}
        for tensor in [*space.parameters(), *space.buffers()]:
            if id(tensor) in memo:
                continue
            empty = torch.empty_like(tensor, device="meta")
            memo[id(tensor)] = (
                nn.Parameter(empty, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty
            )
        return copy.deepcopy(space, memo)


def _same(one: Program, two: Program, message: str) -> None:
    why = _difference(one, two)
    if why is not None:
        step, reason = why
        where, call = (step.where, step.call) if step else ("forward", "forward")
        raise SpaceError(message.format(where=where or "forward", call=call, why=reason))


def _difference(one: Program, two: Program) -> tuple[Step | None, str] | None:
    for a, b in zip(one.steps, two.steps, strict=False):
        if (a.kind, a.name, a.target, a.reads, a.writes) != (b.kind, b.name, b.target, b.reads, b.writes):
            return a, f"{a.name} against {b.name}"
        if repr((a.args, a.kwargs)) != repr((b.args, b.kwargs)):
            return a, f"arguments {_brief(a)} against {_brief(b)}"
    if len(one.steps) != len(two.steps):
        longer = max(one, two, key=lambda p: len(p.steps))
        extra = longer.steps[min(len(one.steps), len(two.steps))]
        return extra, f"{len(one.steps)} against {len(two.steps)} steps"
    if repr(one.output) != repr(two.output):
        return None, "another result"
    return None


def _brief(step: Step) -> str:
    text = repr((step.args, step.kwargs))
    return text if len(text) < 80 else text[:77] + "..."


def _with_mode(train: Program, evaluation: Program) -> Program:
    """`train`, with flags that merely follow `self.training` made mode-dependent."""
    steps: list[Step] = []
    for a, b in zip(train.steps, evaluation.steps, strict=False):
        if a.name == b.name and repr((a.args, a.kwargs)) != repr((b.args, b.kwargs)):
            train_args, train_kwargs = _merge((a.args, a.kwargs), (b.args, b.kwargs), own=True)
            eval_args, eval_kwargs = _merge((b.args, b.kwargs), (a.args, a.kwargs), own=False)
            a = replace(a, args=train_args, kwargs=train_kwargs)
            evaluation.steps[b.index] = replace(b, args=eval_args, kwargs=eval_kwargs)
        steps.append(a)
    merged = Program(train.arch, train.inputs, train.n_inputs, steps, train.output, train.outputs)
    if len(train.steps) != len(evaluation.steps):
        merged = train
    _same(merged, evaluation, MODE_BOUND)
    return merged


def _merge_flags(recorded: Any, known: Any) -> Any:
    """`recorded` (in training mode), with the flags of `known` in their places."""
    if isinstance(known, ModeConst):
        return known if recorded is known.train else recorded
    if type(recorded) is type(known) and isinstance(known, tuple | list) and len(recorded) == len(known):
        return type(known)(_merge_flags(a, b) for a, b in zip(recorded, known, strict=True))
    if isinstance(known, dict) and isinstance(recorded, dict) and recorded.keys() == known.keys():
        return {key: _merge_flags(recorded[key], known[key]) for key in recorded}
    return recorded


def _merge(one: Any, two: Any, *, own: bool) -> Any:
    """`one` with flags that differ in `two` made mode-dependent; `own`: whether `one` is the training mode's."""
    if type(one) is type(two) is bool and one is not two:
        return ModeConst(one if own else two)
    if type(one) is type(two) and isinstance(one, tuple | list) and len(one) == len(two):
        return type(one)(_merge(a, b, own=own) for a, b in zip(one, two, strict=True))
    if isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys():
        return {key: _merge(one[key], two[key], own=own) for key in one}
    return one
