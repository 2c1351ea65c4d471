"""Arguments of a recorded call with the tensors cut out.

A template is the nested tuple/list/dict of a call's arguments in which every tensor is a `Ref` (value of the
program) or a `ParamRef` (parameter or buffer of the model), every size that came from a shape is an
expression over shapes, and every device is `DEVICE`. Two recordings agree if their templates are equal.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Ref:
    """The tensor (or shape) with this value number."""

    value: int


@dataclass(frozen=True)
class ParamRef:
    """The parameter or buffer with this name."""

    name: str


@dataclass(frozen=True)
class DeviceRef:
    """The device the network runs on."""


DEVICE = DeviceRef()


@dataclass(frozen=True)
class ModeConst:
    """A flag that is True in training mode and False in eval mode (or the reverse), like F.dropout's."""

    train: bool


@dataclass(frozen=True)
class DimExpr:
    """Size `axis` of the shape held by value `shape`."""

    shape: int
    axis: int


@dataclass(frozen=True)
class OpExpr:
    """Integer arithmetic on sizes."""

    op: str
    left: Any
    right: Any


_OPS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}


class Size(int):
    """An int that remembers which shape it came from, so that a program fits batches of any length."""

    expr: Any

    def __new__(cls, value: int, expr: Any) -> Size:
        made = super().__new__(cls, value)
        made.expr = expr
        return made

    def __add__(self, other: int) -> int:
        return _arith("+", self, other)

    def __radd__(self, other: int) -> int:
        return _arith("+", other, self)

    def __sub__(self, other: int) -> int:
        return _arith("-", self, other)

    def __rsub__(self, other: int) -> int:
        return _arith("-", other, self)

    def __mul__(self, other: int) -> int:
        return _arith("*", self, other)

    def __rmul__(self, other: int) -> int:
        return _arith("*", other, self)

    def __floordiv__(self, other: int) -> int:
        return _arith("//", self, other)

    def __rfloordiv__(self, other: int) -> int:
        return _arith("//", other, self)

    def __mod__(self, other: int) -> int:
        return _arith("%", self, other)

    def __rmod__(self, other: int) -> int:
        return _arith("%", other, self)

    def __neg__(self) -> int:
        return _arith("-", 0, self)

    def __deepcopy__(self, memo: Any) -> int:
        return int(self)

    def __reduce__(self) -> Any:
        return int, (int(self),)


def _arith(op: str, left: int, right: int) -> int:
    if not isinstance(left, int) or not isinstance(right, int):
        return NotImplemented
    value = _OPS[op](int(left), int(right))
    return Size(value, OpExpr(op, _expr(left), _expr(right)))


def _expr(value: int) -> Any:
    return value.expr if isinstance(value, Size) else int(value)


_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, Ref, ParamRef, Size, int, float, bool, str, type(None)})


def map_tree(fn: Callable[[Any], Any], tree: Any) -> Any:
    """`tree` with `fn` applied to every leaf; tuples (named ones too), lists, dicts and slices are followed."""
    kind = type(tree)
    if kind in _PLAIN:
        return fn(tree)
    if kind is tuple:
        return tuple([map_tree(fn, item) for item in tree])
    if isinstance(tree, torch.Size):
        return tuple(map_tree(fn, item) for item in tree)
    if isinstance(tree, tuple):
        items = [map_tree(fn, item) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else _tuple(tree, items)
    if isinstance(tree, list):
        return [map_tree(fn, item) for item in tree]
    if isinstance(tree, dict):
        return {key: map_tree(fn, item) for key, item in tree.items()}
    if isinstance(tree, slice):
        return slice(map_tree(fn, tree.start), map_tree(fn, tree.stop), map_tree(fn, tree.step))
    return fn(tree)


def _tuple(like: tuple[Any, ...], items: list[Any]) -> Any:
    """torch's own result tuples (`torch.return_types`) are built from one sequence."""
    if type(like) is tuple:
        return tuple(items)
    return type(like)(items)  # pyright: ignore[reportCallIssue]


def leaves(tree: Any) -> list[Any]:
    found: list[Any] = []
    map_tree(found.append, tree)
    return found


def boxes(tree: Any) -> list[Any]:
    """The lists, dicts and sets in `tree`."""
    found = [tree] if isinstance(tree, list | dict | set) else []
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else ()
    return found + [box for item in inner for box in boxes(item)]


def contents(box: Any) -> list[Any]:
    """What a list, dict or set holds, keys included."""
    return [*box, *box.values()] if isinstance(box, dict) else list(box)


def evaluate(expr: Any, shape_of: Callable[[int], tuple[int, ...]]) -> int:
    """The value of a size expression, given the shapes of values."""
    if isinstance(expr, DimExpr):
        return shape_of(expr.shape)[expr.axis]
    if isinstance(expr, OpExpr):
        return _OPS[expr.op](evaluate(expr.left, shape_of), evaluate(expr.right, shape_of))
    return expr


def shapes_in(expr: Any) -> tuple[int, ...]:
    """Value numbers of the shapes an expression needs."""
    if isinstance(expr, DimExpr):
        return (expr.shape,)
    if isinstance(expr, OpExpr):
        return shapes_in(expr.left) + shapes_in(expr.right)
    return ()


def compile_template(template: Any) -> Callable[[Mapping[int, Any], Callable[[str], Any], bool, Any], Any]:
    """A function `(values, parameter, training, device) -> arguments` that fills `template` in.

    `values` maps value numbers to tensors and shapes, `parameter` gives a tensor by name.
    """
    if isinstance(template, tuple) and all(isinstance(item, Ref) for item in template):
        numbers = [item.value for item in template]  # the common case: f(a, b)
        return lambda values, parameter, training, device: tuple([values[n] for n in numbers])
    if not template:
        return lambda values, parameter, training, device: template

    def fill(values: Mapping[int, Any], parameter: Callable[[str], Any], training: bool, device: Any) -> Any:
        def leaf(item: Any) -> Any:
            if isinstance(item, Ref):
                return values[item.value]
            if isinstance(item, ParamRef):
                return parameter(item.name)
            if isinstance(item, DeviceRef):
                return device
            if isinstance(item, ModeConst):
                return item.train is training
            if isinstance(item, DimExpr | OpExpr):
                return evaluate(item, values.__getitem__)
            return item

        return map_tree(leaf, template)

    return fill
