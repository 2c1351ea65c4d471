"""Strides of dimensions of size 1 do not travel, and choose no kernels: workers have the plain loop's bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sennit.supernet import landing
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_sync_rules import CHAIN


@pytest.mark.parametrize("space", ["Strides", "Mixed"])
def test_the_bits_of_the_plain_loop(space: str, tmp_path: Path) -> None:
    made = recipe(**{**CHAIN, "space": f"strides.py:{space}", "space_args": {}, "steps": 6})
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    ways: list[dict[str, Any]] = [{"workers": 1}, {"workers": 2}, {"workers": 3, "release": "layer"}]
    for n, placed in enumerate([*ways, {"workers": 2, "chunks": 2}]):
        assert hashes(run(made, tmp_path / f"{n}", **placed)) == plain


def test_the_bits_of_hooks_at_every_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = recipe(**{**CHAIN, "space": "strides.py:Mixed", "space_args": {}, "steps": 12})
    found = hashes(run(made, tmp_path / "landings", engine="plain"))
    monkeypatch.setattr(landing, "EVERY", 1)
    assert hashes(run(made, tmp_path / "hooks", engine="plain")) == found
    assert hashes(run(made, tmp_path / "2", workers=2)) == found
