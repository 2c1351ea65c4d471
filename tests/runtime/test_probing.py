"""Probes look at a run, and change nothing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.runtime.runs import hashes, recipe, run


def test_probes_see_every_subnet_and_change_nothing(tmp_path: Path) -> None:
    made = recipe()
    quiet = run(made, tmp_path / "quiet", workers=2)
    seen: list[dict[str, Any]] = []
    plain: list[dict[str, Any]] = []

    def probe(event: dict[str, Any]) -> None:
        seen.append(dict(event))
        event["arch"].clear()  # a copy: this cannot reach the run
        random.random()

    result = run(made, tmp_path / "probed", workers=2, probes=(probe,))
    run(made, tmp_path / "plain", engine="plain", probes=(plain.append,))
    assert hashes(result) == hashes(quiet)
    assert [event["seq_id"] for event in seen] == list(range(made.steps))
    assert [event["gradient_norms"] for event in seen] == [event["gradient_norms"] for event in plain]
