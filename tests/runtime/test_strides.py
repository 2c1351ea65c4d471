"""Strides of dimensions of size 1 do not travel, and choose no kernels: workers have the plain loop's bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_sync_rules import CHAIN


def test_the_bits_of_the_plain_loop(tmp_path: Path) -> None:
    made = recipe(**{**CHAIN, "space": "strides.py:Strides", "space_args": {}, "steps": 6})
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    ways: list[dict[str, Any]] = [{"workers": 1}, {"workers": 2}, {"workers": 3, "release": "layer"}]
    for n, placed in enumerate([*ways, {"workers": 2, "chunks": 2}]):
        assert hashes(run(made, tmp_path / f"{n}", **placed)) == plain
