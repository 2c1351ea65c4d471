"""Tensors that are on their way to a GPU: taken when there, or early, with the device to wait for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runtime.gloo import through_gloo
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_chimera import TIED
from tests.runtime.test_engines import violations

PLACED: dict[str, dict[str, Any]] = {
    "two": {"workers": 2},
    "three, chunks, by layer": {"workers": 3, "chunks": 2, "release": "layer"},
    "four, split": {"workers": 4, "split": True},
    "replicas": {"workers": 4, "replicas": 2},
}


@pytest.mark.parametrize("case", PLACED)
@pytest.mark.parametrize("changes", [{}, {"shared": "delayed:3"}, TIED], ids=["strict", "delayed", "tied"])
def test_workers_that_take_messages_early_give_the_bits_of_the_plain_loop(
    case: str, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is ever there before it is waited for, so everything is taken early."""
    made = recipe(**{"steps": 8, "micro_batches": 4, **changes})
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    through_gloo(monkeypatch, 4)
    result = run(made, tmp_path / "run", device="cuda", **PLACED[case])
    assert hashes(result) == plain and not violations(tmp_path / "run")
