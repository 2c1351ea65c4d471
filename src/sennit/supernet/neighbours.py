"""Files that a user's file imports and that lie beside it: their code is part of what was trained.

    net.py ──import blocks──▶ blocks.py ──from parts.conv import Conv──▶ parts/__init__.py, parts/conv.py
       └────import torch────▶ not beside it: an installed package, which the fingerprint of a run knows

Imports are read, not run. What is imported by a name made at run time is not seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def neighbours(path: Path) -> list[Path]:
    """Files in the folder of `path`, or below it, that it imports, directly or through others; sorted."""
    root, found, open_files = path.parent, {path}, [path]
    while open_files:
        file = open_files.pop()
        with suppress(OSError, SyntaxError):  # whoever imports it says so
            new = {other for name in _imported(file, root) for other in _files(root, name)} - found
            found |= new
            open_files += new
    return sorted(found - {path})


def _imported(file: Path, root: Path) -> Iterator[tuple[str, ...]]:
    """Names of modules that the code of a file imports, from `root` on; some are of classes and functions in them."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = file.parent.relative_to(root).parts if node.level else ()
            above = package[: max(0, len(package) - node.level + 1)]
            module = (*above, *(node.module.split(".") if node.module else ()))
            yield module
            yield from ((*module, alias.name) for alias in node.names)


def _files(root: Path, name: tuple[str, ...]) -> Iterator[Path]:
    """Files under `root` that are run when a module is imported."""
    for n in range(1, len(name) + 1):
        place = root.joinpath(*name[:n])
        yield from (file for file in (place.with_name(f"{place.name}.py"), place / "__init__.py") if file.is_file())
