"""Code of the files that a recipe names, and of those that they import and that lie beside them.

    net.py ──import blocks──▶ blocks.py ──from parts.conv import Conv──▶ parts/__init__.py, parts/conv.py
       └────import torch────▶ not beside it: an installed package, which the fingerprint of a run knows

Imports are read, not run. What is imported by a name made at run time is not seen.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def code_hashes(text: str, base: str) -> dict[str, str]:
    """SHA-256 of the code in the file that `file.py:Name` names, and of those in its folder or below that it imports,
    directly or through others, by path from its folder; the first one's is empty. Comments and layout do not count.

    Raises:
        OSError, SyntaxError: the file itself cannot be read. Of the others, whoever imports them says so.
    """
    path = (Path(base) / text.rpartition(":")[0]).resolve()
    trees = {path: ast.parse(path.read_bytes())}
    unread = [path]
    while unread:
        file = unread.pop()
        for other in _beside(file, trees[file], path.parent):
            if other not in trees:
                with suppress(OSError, SyntaxError):
                    trees[other] = ast.parse(other.read_bytes())
                    unread.append(other)
    hashes = {file: hashlib.sha256(ast.dump(tree).encode()).hexdigest() for file, tree in trees.items()}
    first = {"": hashes.pop(path)}
    return {**first, **{file.relative_to(path.parent).as_posix(): hashes[file] for file in sorted(hashes)}}


def _beside(file: Path, tree: ast.AST, root: Path) -> Iterator[Path]:
    """Files under `root` that are run when what a file imports is imported."""
    for name in _imported(file, tree, root):
        for n in range(1, len(name) + 1):
            place = root.joinpath(*name[:n])
            yield from (held for held in (place.with_name(f"{place.name}.py"), place / "__init__.py") if held.is_file())


def _imported(file: Path, tree: ast.AST, root: Path) -> Iterator[tuple[str, ...]]:
    """Names of modules that the code of a file imports, from `root` on; some are of classes and functions in them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = file.parent.relative_to(root).parts if node.level else ()
            above = package[: max(0, len(package) - node.level + 1)]
            module = (*above, *(node.module.split(".") if node.module else ()))
            yield module
            yield from ((*module, alias.name) for alias in node.names)
