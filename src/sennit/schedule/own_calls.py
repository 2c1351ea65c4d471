"""Whether what a user's file names as an order can be called as an order is: looked at before anything runs."""

from __future__ import annotations

import inspect
from typing import Any

from sennit.errors import UserError

METHODS: dict[str, tuple[str, ...]] = {"add": ("task",), "pop": ()}
"""Of an order, with what they are called with."""

_known: dict[int, Any] = {}
"""What has been looked at, by id, and so kept; workers ask for their policy at every subnet."""


def refuse_order(schedule: str, made_by: Any) -> None:
    """Look at what is called with (worker, setting), and at the methods of it if it is a class.

    Raises:
        UserError: it does not take these arguments.
    """
    if id(made_by) in _known:
        return
    if mistake := _mistake(made_by, ("worker", "setting")):
        raise UserError(
            f"schedule {schedule}: {_described(made_by)} is called with (worker, setting), once for each worker, but "
            f"{mistake}. Write def __init__(self, worker, setting), see docs/own_schedule.md"
        )
    if isinstance(made_by, type):
        for method, given in METHODS.items():
            function = inspect.getattr_static(made_by, method, None)
            if inspect.isfunction(function):  # else what an instance has is looked at
                _refuse_method(schedule, function, method, ("self", *given))
    _known[id(made_by)] = made_by


def refuse_methods(schedule: str, order: Any) -> None:
    """Look at the methods of an order that was made.

    Raises:
        UserError: one is missing, or does not take what it is called with.
    """
    if missing := [method for method in METHODS if not callable(getattr(order, method, None))]:
        raise UserError(
            f"schedule {schedule}: {type(order).__name__} has no {' and no '.join(missing)}; an order has add(task), "
            "told of each ready task, and pop(), which gives the one to run now, or None to wait"
        )
    for method, given in METHODS.items():
        _refuse_method(schedule, getattr(order, method), method, given)


def _refuse_method(schedule: str, function: Any, method: str, given: tuple[str, ...]) -> None:
    if mistake := _mistake(function, given):
        raise UserError(
            f"schedule {schedule}: {_described(function)} is called as {method}({', '.join(METHODS[method])}), but "
            f"{mistake}. An order has add(task) and pop(), see docs/own_schedule.md"
        )


def _mistake(function: Any, given: tuple[str, ...]) -> str:
    """What is wrong with a call of `function` with such arguments; nothing if it can be, or Python cannot tell."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(*given)
    except TypeError as error:
        parameters = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
        return f"takes {inspect.Signature(parameters)}: {error}"
    return ""


def _described(function: Any) -> str:
    """Its name, with file and line where it has one."""
    name = getattr(function, "__qualname__", type(function).__name__)
    inner = function.__init__ if isinstance(function, type) else function
    code = getattr(inner, "__code__", None)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else name
