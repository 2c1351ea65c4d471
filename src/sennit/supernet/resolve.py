"""Names in a recipe: a built-in one, or `file.py:Name` relative to the recipe file."""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sennit.errors import RecipeError


def is_file_name(text: str) -> bool:
    return ".py:" in text


def resolve(text: str, base: str, key: str, builtin: Iterable[str]) -> Any:
    """The object that `file.py:Name` names.

    Args:
        key: the recipe key, or the option with its dashes, for messages.
        builtin: names that could have been meant.

    Raises:
        RecipeError: no such built-in name, file or object, or the file fails when run.
    """
    if not is_file_name(text):
        raise RecipeError(f"{key} = {text!r} is neither built in ({', '.join(builtin)}) nor of the form 'file.py:Name'")
    file, _, name = text.rpartition(":")
    path = (Path(base) / file).resolve()
    if not path.is_file():
        where = "the current folder" if key.startswith("--") else "the recipe file"
        raise RecipeError(f"{key} = {text!r}: there is no file {path} (paths are relative to {where})")
    module = _load(path, key)
    if not hasattr(module, name):
        own = [n for n, held in vars(module).items() if getattr(held, "__module__", "") == module.__name__]
        close = difflib.get_close_matches(name, own, n=1)
        hint = f"did you mean {close[0]!r}? It defines" if close else "it defines"
        raise RecipeError(f"{key} = {text!r}: {path} has no {name!r}; {hint} {', '.join(own[:20]) or 'nothing'}")
    return getattr(module, name)


def _load(path: Path, key: str) -> Any:
    module_name = f"sennit_user_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    sys.path.insert(0, str(path.parent))  # a user's file may import its neighbours
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[module_name]
        last = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        line = f":{last[-1].lineno}" if last else ""
        raise RecipeError(f"{key}: {path}{line} failed when loaded: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(path.parent))
    return module
