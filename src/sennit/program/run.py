"""Running steps: the one function that both the plain loop and the workers call for each step."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

import torch
from torch import Tensor

from sennit.errors import SpaceError
from sennit.program.refusals import MODIFIED
from sennit.program.step import Program, Step
from sennit.program.template import Ref
from sennit.program.unit import Unit
from sennit.supernet.context import StepContext
from sennit.supernet.edge import enter

Values = MutableMapping[int, Any]
"""Value number to tensor, or to a tuple of ints for a shape."""


def run_step(
    step: Step,
    values: Values,
    unit: Unit | None,
    parameter: Callable[[str], Tensor],
    context: StepContext | None,
    device: torch.device,
    training: bool,
) -> None:
    """Run one step: read its values through Edges, store what it produces.

    Args:
        values: read and added to.
        unit: of a "module" step, its parameters in place; None for other kinds.
        parameter: tensor of a parameter or buffer that a "call" step names.
        context: random key and precision; None leaves generators alone.

    Raises:
        SpaceError: the step has modified a tensor that came in.
    """
    if step.kind == "shape":
        values[step.writes[0]] = tuple(values[step.reads[0]].shape)
        return
    torch_only, landing, entered = True, None, list[Any]()
    if unit is not None:
        torch_only = unit.torch_only
        if torch_only and step.steady and training:
            read = [values[n] for n in step.reads]
            landing = unit.landing(read, (device, context.precision if context is not None else ""))
            entered = landing.enter(read, step.uses)
    if landing is None:
        entered = [enter(v, use, torch_only) if isinstance(v := values[n], Tensor) else v for n, use in step.entries]
    if context is not None and (unit is None or unit.draws):
        context.enter(step.key, torch_only=torch_only)
    args, kwargs = entered, _NOTHING
    if not step.direct:
        by_number = dict(zip(step.reads, entered, strict=True))
        args = step.fill_args(by_number, parameter, training, device)
        kwargs = step.fill_kwargs(by_number, parameter, training, device)
    function = unit.module if unit is not None else step.target
    # what a unit of torch's does to its inputs, it does each time
    came = [v for v in entered if isinstance(v, Tensor)] if training and not (landing and landing.calls > 1) else []
    versions = [tensor._version for tensor in came]
    if step.no_grad:
        with torch.no_grad():
            result = _call(function, args, kwargs, context)
    else:
        result = _call(function, args, kwargs, context)
    if came and versions != [tensor._version for tensor in came]:
        raise SpaceError(MODIFIED.format(where=step.where or step.name, call=step.call))
    store(step.out, result, step, values)
    if landing is not None and landing.watching:
        landing.look(entered, values[step.writes[0]])
    # a step that gives what it was given (`nn.Identity`, `x.float()`) gives a view, a value of its own in the graph;
    # else hooks of its readers would meet gradients of the other's readers
    for n in step.writes:
        made = values[n]
        for tensor in entered:
            if made is tensor and isinstance(made, Tensor) and made.requires_grad and torch.is_grad_enabled():
                values[n] = made.view_as(made)


_NOTHING: dict[str, Any] = {}


def _call(function: Callable[..., Any], args: Any, kwargs: Any, context: StepContext | None) -> Any:
    if context is None or context.precision != "bf16":
        return function(*args, **kwargs)
    with context.autocast():
        return function(*args, **kwargs)


def store(template: Any, result: Any, step: Step, values: Values) -> None:
    """Put the tensors of `result` under the numbers that `template` holds in their places."""
    if isinstance(template, Ref):
        if template.value in step.writes:
            values[template.value] = result
    elif isinstance(template, tuple | list):
        for part, item in zip(template, result, strict=True):
            store(part, item, step, values)
    elif isinstance(template, dict):
        for key, part in template.items():
            store(part, result[key], step, values)


def bind_inputs(program: Program, args: Any, kwargs: Any) -> Values:
    """Values of the program inputs of one call."""
    values: Values = {}
    _bind(values, program.inputs, (args, kwargs))
    return values


def _bind(values: Values, template: Any, item: Any) -> None:
    # no function of `bind_inputs`: one that calls itself is a cycle, and would hold the batch until it is found
    if isinstance(template, Ref):
        values[template.value] = item
    elif isinstance(template, tuple | list):
        for part, inner in zip(template, item, strict=True):
            _bind(values, part, inner)
    elif isinstance(template, dict):
        for key, part in template.items():
            _bind(values, part, item[key])


def output_of(program: Program, values: Values) -> Any:
    """The call's result, rebuilt from values."""
    from sennit.program.template import compile_template

    filled = compile_template((program.output,))(values, _no_parameter, True, None)
    return filled[0]


def _no_parameter(name: str) -> Tensor:
    raise AssertionError(f"the output of a program cannot be the parameter {name!r}")
