"""Arguments of a function from a table of a file (`space_args`, `data_args`), looked at before it is called.

Names are checked for every function, types for those of sennit: a user's annotations may promise more than they mean.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, get_type_hints

import msgspec

from sennit.errors import UserError
from sennit.strict import in_words


def is_ours(function: Callable[..., Any]) -> bool:
    """Whether sennit brings this function or class."""
    return getattr(_inner(function), "__module__", "").startswith("sennit.")


def refuse_arguments(
    function: Callable[..., Any], arguments: Mapping[str, Any], table: str, kind: type[UserError]
) -> None:
    """Raise `kind` if `function` has no argument of one of these names, lacks one, or wants another type.

    Args:
        table: where the arguments stand in the recipe.
    """
    parameters = parameters_of(function)
    if parameters is None:
        return
    named = [name for name, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    given = f"these {table} {dict(arguments)!r}"
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        for name, value in arguments.items():
            if name not in named:
                close = difflib.get_close_matches(name, named, n=1)
                hint = f"did you mean {close[0]!r}? It takes" if close else "it takes"
                raise kind(
                    f"{_called(function)} does not take {given}: there is no argument {name!r} (= {value!r:.80}); "
                    f"{hint} {', '.join(named) or 'none'}"
                )
    for name in named:
        if parameters[name].default is inspect.Parameter.empty and name not in arguments:
            raise kind(f"{_called(function)} does not take {given}: {name!r} is missing; set it in [{table}]")
    if is_ours(function):
        _refuse_types(function, arguments, table, kind)


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    """What a function, or a class's constructor, can still be given by name; None if Python cannot tell."""
    if isinstance(function, partial):
        left = parameters_of(function.func)
        return None if left is None else dict(list(left.items())[len(function.args) :])
    own = isinstance(function, type) and function.__init__ is not object.__init__
    try:
        # the signature of a class with a metaclass would be that of the metaclass's __call__
        held = inspect.signature(function.__init__ if own else function).parameters  # type: ignore[misc]
    except (TypeError, ValueError):
        return None
    return dict(list(held.items())[1:]) if own else held


def _refuse_types(
    function: Callable[..., Any], arguments: Mapping[str, Any], table: str, kind: type[UserError]
) -> None:
    inner = _inner(function)
    hints = get_type_hints(inner.__init__ if isinstance(inner, type) else inner)
    for name, value in arguments.items():
        try:
            msgspec.convert(value, hints.get(name, Any), strict=True)
        except msgspec.ValidationError as error:
            said = in_words(str(error).partition(" - at `$")[0])
            raise kind(f"{table} {name} = {value!r:.80}: {said}") from error
        except TypeError:  # a type that msgspec does not know
            continue


def _inner(function: Callable[..., Any]) -> Any:
    while isinstance(function, partial):
        function = function.func
    return function


def _called(function: Callable[..., Any]) -> str:
    return getattr(_inner(function), "__name__", repr(function))
