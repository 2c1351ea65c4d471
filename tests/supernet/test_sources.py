"""Code that is imported counts as the code of the file that imports it, if it lies beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sennit.supernet.sources import code_hashes

FILES = {
    "net.py": "import torch\nimport blocks\ndef late():\n    from parts.conv import Conv, pad\n",
    "blocks.py": "from torch import nn\nimport shapes as s\n",
    "shapes.py": "import blocks\n",  # in a circle
    "parts/__init__.py": "",
    "parts/conv.py": "from . import pad\nfrom .deep.inner import x\nfrom ..outside import y\n",
    "parts/pad.py": "",
    "parts/deep/inner.py": "from .. import tail\nfrom ..more import z\n",
    "parts/tail/__init__.py": "",
    "parts/more.py": "",
    "unused.py": "import blocks\n",
    "broken.py": "def (\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def names(path: Path) -> list[str]:
    """Of files beside it whose code counts as its own."""
    first, *others = code_hashes(f"{path.name}:Any", str(path.parent))
    assert first == ""
    return others


def test_what_is_imported_directly_or_through_others_is_found(folder: Path) -> None:
    assert names(folder / "net.py") == [
        "blocks.py", "parts/__init__.py", "parts/conv.py", "parts/deep/inner.py", "parts/more.py", "parts/pad.py",
        "parts/tail/__init__.py", "shapes.py",
    ]  # fmt: skip
    assert names(folder / "unused.py") == ["blocks.py", "shapes.py"]


@pytest.mark.parametrize(
    "text",
    ["import broken", "import os, nothing.there", "from .net import x", "from ... import far", "from broken import *"],
)
def test_what_cannot_be_read_is_left_to_who_imports_it(text: str, folder: Path) -> None:
    (folder / "odd.py").write_text(text)
    assert set(names(folder / "odd.py")) <= {"broken.py", *names(folder / "net.py"), "net.py"}
    assert "" in code_hashes("odd.py:Odd", str(folder)) and "broken.py" not in code_hashes("odd.py:Odd", str(folder))


def test_a_change_is_seen_where_it_is(folder: Path) -> None:
    before = code_hashes("net.py:Net", str(folder))
    (folder / "parts/more.py").write_text("z = 1\n")
    (folder / "unused.py").write_text("z = 1\n")
    (folder / "blocks.py").write_text("# a comment\n" + FILES["blocks.py"])
    after = code_hashes("net.py:Net", str(folder))
    assert [name for name in before if before[name] != after[name]] == ["parts/more.py"]
    assert before.keys() == after.keys()
