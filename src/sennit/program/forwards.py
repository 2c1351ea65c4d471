"""Calls of a `forward` that cannot be: there is none, it does not take what it is given, or it gives nothing back."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from torch import Tensor, nn

from sennit.errors import SpaceError
from sennit.program.calls import place
from sennit.program.template import leaves
from sennit.space.input_choice import InputChoice

NONE = """{where}: {name} has no forward, so there is nothing to run ({given}). Write one, indented as __init__ is:
    def forward(self, x): return self.head(self.blocks(x))"""

OTHER = """{where}: forward of {name} takes {takes}, but {given}: {reason}.
{rule}"""

OF_DATA = """forward is called with the x of the data: a tensor is one argument, a tuple or list is splatted, a dict
becomes keywords (docs/files.md). Change forward, or what the data gives as x"""

OF_CALL = "Change this call, or forward"

OF_LIST = "It takes its tensors as one list: self.pick([a, b, c]). Change this call"

KEYS = (
    "the data gives a dict with keys {keys}: a dict becomes keywords of forward (docs/files.md), so its keys must be "
    "strings, the names of forward's arguments"
)

NOTHING = """{where}: forward of {name} returned {result}, in which there is no tensor, so there would be no loss. Does
it forget `return`?
    wrong:  def forward(self, x): self.head(self.blocks(x))
    right:  def forward(self, x): return self.head(self.blocks(x))
The arch was {arch}"""


def refuse_call(module: nn.Module, args: Any, kwargs: Any, is_root: bool) -> None:
    """Of a call of `module` that raised: refuse it if it could not begin.

    Args:
        is_root: the arguments come from the data, no line of the user's calls it.

    Raises:
        SpaceError: there is no forward, or it does not take these arguments.
    """
    forward, name = module.forward, type(module).__name__
    if getattr(forward, "__func__", None) is nn.Module.forward:
        where = _class_line(module) if is_root else place()
        raise SpaceError(NONE.format(where=where, name=name, given=_given(args, kwargs, is_root)))
    try:
        signature = inspect.signature(forward)
    except (TypeError, ValueError):  # Python cannot tell
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        told = OTHER.format(
            where=_forward_line(module) if is_root else place(),
            name=name,
            takes=_without_annotations(signature),
            given=_given(args, kwargs, is_root),
            reason=error,
            rule=OF_DATA if is_root else OF_LIST if isinstance(module, InputChoice) else OF_CALL,
        )
        raise SpaceError(told) from None


def refuse_keys(kwargs: Any) -> None:
    """Refuse a dict of the data that cannot become keywords.

    Raises:
        SpaceError: a key is no string.
    """
    if not all(isinstance(key, str) for key in kwargs):
        raise SpaceError(KEYS.format(keys=", ".join(map(repr, kwargs))))


def refuse_result(module: nn.Module, result: Any, arch: Any) -> None:
    """Refuse what the root's forward returned if it can have no loss.

    Raises:
        SpaceError: there is no tensor in it.
    """
    if not any(isinstance(leaf, Tensor) for leaf in leaves(result)):
        where, name = _forward_line(module), type(module).__name__
        raise SpaceError(NOTHING.format(where=where, name=name, result=f"{result!r:.80}", arch=arch))


def _given(args: Any, kwargs: Any, is_root: bool) -> str:
    """What the call has, in words."""
    parts: list[str] = []
    if len(args) == 1:
        parts.append("one tensor" if isinstance(args[0], Tensor) else f"one {type(args[0]).__name__}")
    elif args or not kwargs:
        parts.append(f"a tuple of {len(args)}" if is_root else f"{len(args)} arguments")
    if kwargs:
        keys = ", ".join(map(repr, kwargs))
        parts.append(f"a dict with {keys}" if is_root else f"keywords {keys}")
    return f"{'the data gives' if is_root else 'it is called with'} {' and '.join(parts)}"


def _without_annotations(signature: inspect.Signature) -> inspect.Signature:
    parameters = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return inspect.Signature(parameters)


def _forward_line(module: nn.Module) -> str:
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return _class_line(module) if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _class_line(module: nn.Module) -> str:
    """Of its constructor where it has one, else of the file."""
    kind = type(module)
    code = getattr(kind.__init__, "__code__", None)
    if code is not None and "__init__" in kind.__dict__:
        return f"{code.co_filename}:{code.co_firstlineno}"
    return getattr(sys.modules.get(kind.__module__), "__file__", None) or kind.__module__
