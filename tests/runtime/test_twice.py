"""A tensor that a step gives more than once is one value: any number of workers has the plain loop's bits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sennit.program.recordings import Recordings, spec_of
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_engines import violations
from tests.runtime.test_sync_rules import CHAIN
from tests.runtime.twice import Twice

KINDS = ("pair", "through", "needy", "function")


@pytest.mark.parametrize("kind", KINDS)
def test_the_bits_of_the_plain_loop(kind: str, tmp_path: Path) -> None:
    """Was refused, with a message about `if self.training:`."""
    made = recipe(**{**CHAIN, "space": "twice.py:Twice", "space_args": {"kind": kind}, "steps": 10})
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    for workers, placed in ((2, {}), (3, {"release": "layer", "split": True})):
        out = tmp_path / f"{workers}"
        assert hashes(run(made, out, workers=workers, **placed)) == plain
        assert not violations(out)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_one_value_however_often_it_is_recorded(kind: str) -> None:
    recordings = Recordings(Twice(kind))
    archs = [{f"blocks.{i}": int(i == one) for i in range(4)} for one in range(5)]
    programs = [recordings.program(arch, spec_of(((torch.zeros(3, 6),), {}))) for arch in [*archs, *archs]]
    writes = [[step.writes for step in p.steps if step.name in ("unit", ":broadcast_tensors#0")] for p in programs]
    assert all(w == writes[0] for w in writes)
    assert len(writes[0][-1]) == (2 if kind == "through" else 1)
