"""What a call of `train` says of itself."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sennit.runtime.facts import Facts


@pytest.mark.parametrize(("asked", "more"), [(1200, ""), (300, " --steps 300")])
def test_who_goes_on_is_told_how_far_it_was_to_go(asked: int, more: str) -> None:
    """A run of 300 that was stopped went on to the recipe's 1,200."""
    request: Any = SimpleNamespace(recipe=SimpleNamespace(steps=1200))
    said = Facts(request, asked, "", {}, {}, True).resume(Path("runs/first"))
    assert said == f"--out runs/first --resume{more}"
