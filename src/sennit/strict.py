"""Typed dataclasses from files, strictly: an unknown key, a missing one or a wrong type is named with its place.

What people write must have no unknown keys (`convert_strictly`); what sennit wrote may have more than is asked for
(`check_known`).
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from typing import Any, TypeVar, cast, get_args, get_type_hints

import msgspec

from sennit.errors import RecipeError

T = TypeVar("T")


def convert_strictly(cls: type[T], plain: Mapping[str, Any], where: str, renamed: Mapping[str, str] | None = None) -> T:
    """`cls(**plain)` with types checked and no unknown keys, tables included.

    Args:
        where: the file, for messages.
        renamed: key in the file to name of the field, where they differ.

    Raises:
        RecipeError: with the path of the key inside `where`, the value and what is legal.
    """
    renamed = renamed or {}
    key_of = {field: key for key, field in renamed.items()}
    _refuse_unknown(cls, plain, where, "", key_of, cls)
    plain = {renamed.get(key, key): value for key, value in plain.items()}
    missing = [
        key_of.get(f.name, f.name) for f in dataclasses.fields(cls)  # type: ignore[arg-type]
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING and f.name not in plain
    ]  # fmt: skip
    if missing:
        raise RecipeError(f"{where}: required key{'s' if len(missing) > 1 else ''} missing: {', '.join(missing)}")
    try:
        return msgspec.convert(plain, cls, strict=True)
    except msgspec.ValidationError as error:
        raise RecipeError(f"{where}: {_said(error, cls, plain, key_of)}") from error
    except RecipeError as error:
        raise RecipeError(f"{where}: {error}") from error


def check_known(cls: type, plain: Mapping[str, Any]) -> None:
    """The keys of `plain` that `cls` has are there, with values of its types; others are left alone.

    Raises:
        ValueError: they are not; names the key, the value and what is legal.
    """
    try:
        msgspec.convert(plain, cls, strict=True)
    except msgspec.ValidationError as error:
        raise ValueError(_said(error, cls, plain, {})) from error


def _said(error: msgspec.ValidationError, cls: Any, plain: Mapping[str, Any], key_of: Mapping[str, str]) -> str:
    """What msgspec has found, with the key's path in the file and its value."""
    message, _, place = str(error).partition(" - at `$")
    key = place.rstrip("`").lstrip(".")
    message = _in_words(message, cls, key)
    return f"{key_of.get(key, key)} = {_value_at(plain, key)!r:.80}: {message}" if key else message


_WORDS = {
    "str": "a string", "int": "a whole number", "float": "a number", "bool": "true or false", "object": "a table",
    "array": "a list", "null": "nothing",
}  # fmt: skip
"""Types as the words of TOML."""


def _in_words(message: str, cls: Any, key: str) -> str:
    """msgspec's message in terms of the file, with what is legal there."""
    if message.startswith("Invalid enum value"):
        return f"{message}; legal: {', '.join(_legal_words(cls, key))}"
    return in_words(message)


def in_words(message: str) -> str:
    """msgspec's message with types as TOML calls them."""
    message = message.replace("Object missing required field", "the table lacks")
    return re.sub(r"`([^`]+)`", lambda m: " or ".join(_WORDS.get(t, f"`{t}`") for t in m[1].split(" | ")), message)


def _legal_words(cls: Any, key: str) -> tuple[str, ...]:
    """The words of the `Literal` at a key such as `lr.name`."""
    *tables, name = key.split(".")
    for table in tables:
        cls = _tables(cls).get(table, cls)
    return get_args(get_type_hints(cls).get(name))


def _tables(cls: Any) -> dict[str, Any]:
    """Fields that hold a dataclass of their own, also as one of several types."""
    held = {name: (hint, *get_args(hint)) for name, hint in get_type_hints(cls).items()}
    found = {name: [t for t in types if dataclasses.is_dataclass(t)] for name, types in held.items()}
    return {name: types[0] for name, types in found.items() if types}


def _refuse_unknown(
    cls: Any, plain: Mapping[str, Any], where: str, prefix: str, key_of: Mapping[str, str], top: Any
) -> None:
    known = {key_of.get(f.name, f.name): f for f in dataclasses.fields(cls)}
    tables = _tables(cls)
    for key, value in plain.items():
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else "."
            if prefix and key in {f.name for f in dataclasses.fields(top)}:
                hint = f"; {key!r} belongs above the first [table]: what is below one is part of it."
            legal = ", ".join(name for name in known if prefix or name != "base")  # of a recipe: its folder
            raise RecipeError(f"{where}: unknown key {prefix + key!r} (= {value!r}){hint} Legal keys: {legal}")
        if isinstance(value, Mapping) and key in tables:
            _refuse_unknown(tables[key], value, where, f"{key}.", {}, top)


def _value_at(plain: Any, key: str) -> Any:
    """`None` where the path leads nowhere; `[...]`, some key of a table, stands for the table."""
    for part in re.findall(r"[^.\[\]]+|\[\d+\]", key.replace("[...]", "")):
        if part.startswith("["):
            number = int(part[1:-1])
            if not isinstance(plain, list) or number >= len(cast("list[Any]", plain)):
                return None
            plain = cast("list[Any]", plain)[number]
        elif isinstance(plain, Mapping) and part in plain:
            plain = cast("Mapping[str, Any]", plain)[part]
        else:
            return None
    return plain
