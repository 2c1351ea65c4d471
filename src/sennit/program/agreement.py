"""Whether recordings agree: the same program for other batch shapes, and in eval mode but for flags that follow it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sennit.errors import SpaceError
from sennit.program.step import Program, Step
from sennit.program.template import ModeConst, leaves

SHAPE_BOUND = """{where}: `{call}` was recorded differently for two batches of different shape ({why}).
Sizes must be read from the tensor where they are used, and no loop may run over the batch:
    wrong:  n = int(x.shape[0]);  x.view(n, -1)        for row in x: ...
    right:  x.view(x.shape[0], -1)                      one operation on the whole batch
or put the code into a module of its own without choices inside (one step)."""

MODE_BOUND = """{where}: `{call}` was recorded differently in training and in eval mode ({why}).
`if self.training:` around inlined code gives two programs. Put the difference into a module of its own without
choices inside (it is one step and may look at self.training), or pass self.training to the function."""

MADE_ANEW = """{where}: `{call}` is given {what}, which forward makes anew whenever it runs. A step is
the same call in every process, so what it is given besides tensors must be a constant. Make it once, in __init__, or
inside the layer:
    wrong:  self.layer(x, lambda t: t * self.gain)
    right:  self.layer(x, self.gain)                 the layer knows what to do with it"""


def same(one: Program, two: Program, message: str) -> None:
    """Raise `message` if two recordings differ."""
    why = difference(one, two)
    if why is not None:
        step, reason = why
        where, call = (step.where, step.call) if step else ("forward", "forward")
        if step is not None and (made := made_anew(step, two)) is not None:
            raise SpaceError(MADE_ANEW.format(where=where, call=call, what=made))
        raise SpaceError(message.format(where=where or "forward", call=call, why=reason))


def difference(one: Program, two: Program) -> tuple[Step | None, str] | None:
    """The first step in which two recordings differ, and how."""
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


def made_anew(step: Step, other: Program) -> str | None:
    """An argument of a step that is told apart from the other recording's by its address alone."""
    if step.index >= len(other.steps):
        return None
    twin = other.steps[step.index]
    pairs = zip(leaves((step.args, step.kwargs)), leaves((twin.args, twin.kwargs)), strict=False)
    for one, two in pairs:
        if repr(one) != repr(two):
            apart = type(one) is type(two) and " at 0x" in repr(one)
            return f"{getattr(one, '__qualname__', None) or type(one).__qualname__!r}" if apart else None
    return None


def _brief(step: Step) -> str:
    text = repr((step.args, step.kwargs))
    return text if len(text) < 80 else text[:77] + "..."


def with_mode(train: Program, evaluation: Program) -> Program:
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
    same(merged, evaluation, MODE_BOUND)
    return merged


def merge_flags(recorded: Any, known: Any) -> Any:
    """`recorded` (in training mode), with the flags of `known` in their places."""
    if isinstance(known, ModeConst):
        return known if recorded is known.train else recorded
    if type(recorded) is type(known) and isinstance(known, tuple | list) and len(recorded) == len(known):
        return type(known)(merge_flags(a, b) for a, b in zip(recorded, known, strict=True))
    if isinstance(known, dict) and isinstance(recorded, dict) and recorded.keys() == known.keys():
        return {key: merge_flags(recorded[key], known[key]) for key in recorded}
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
