"""A step that gives what it was given makes a value of its own: any number of workers has the plain loop's bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sennit.supernet import landing
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_sync_rules import CHAIN


@pytest.mark.parametrize("first", [True, False], ids=["first reader", "second reader"])
@pytest.mark.parametrize("kind", ["choice", "own", "float", "contiguous", "dropout"])
def test_hooks_of_a_reader_stay_its_own(kind: str, first: bool, tmp_path: Path) -> None:
    """A hook scaled what another reader gave, too, where both were on one worker."""
    made = recipe(**{**CHAIN, "space": "passing.py:Passing", "space_args": {"kind": kind, "first": first}, "steps": 6})
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    ways: list[dict[str, Any]] = [{"workers": 1, "release": "layer"}, {"workers": 2}, {"workers": 2, "split": True}]
    for n, placed in enumerate(ways):
        assert hashes(run(made, tmp_path / f"{n}", **placed)) == plain, placed


@pytest.mark.parametrize("every", [1, 256])
def test_what_a_neighbour_does_says_nothing_of_a_layer(
    every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing, "EVERY", every)
    made = recipe(**{**CHAIN, "space": "passing.py:Turned", "space_args": {}, "steps": 40})
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    assert hashes(run(made, tmp_path / "2", workers=2)) == plain
