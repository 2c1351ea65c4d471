"""What benchmarks and acceptance programs put in place of parts of sennit is there to be replaced."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = [p for folder in ("acceptance", "benchmarks") for p in sorted((ROOT / folder).rglob("*.py"))]


def imported(tree: ast.Module) -> dict[str, Any]:
    """Names that a program has from sennit, to the modules or classes that they are."""
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sennit":
            for alias in node.names:
                outer = importlib.import_module(node.module or "")
                if not hasattr(outer, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
                found[alias.asname or alias.name] = getattr(outer, alias.name)
    return found


def replaced(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(name, attribute) of every `name.attribute = ...`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                    yield target.value.id, target.attr


def gone(text: str) -> list[str]:
    """Attributes that a program replaces and that are not there: it would replace nothing, and nobody would see it."""
    tree = ast.parse(text)
    names = imported(tree)
    return [f"{n}.{a}" for n, a in replaced(tree) if n in names and not hasattr(names[n], a)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: str(p.relative_to(ROOT)))
def test_what_is_replaced_is_there(program: Path) -> None:
    """Trials of `table2.py` pinned their stores, since what pins had another name by then."""
    assert gone(program.read_text(encoding="utf-8")) == []


def test_a_name_that_is_gone_is_seen() -> None:
    head = "from sennit.memory import cuda\nfrom sennit.memory.store import HostStore\n"
    assert gone(head + "cuda.pin = HostStore.populate = None\n") == []
    assert gone(head + "cuda._pin = None\nHostStore.fill = None\n") == ["cuda._pin", "HostStore.fill"]
