"""The bits of one host, on several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sennit.recipe import CheckpointRule
from tests.runtime.hosts.several import codes, run_on
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_chimera import TIED
from tests.runtime.test_engines import violations
from tests.runtime.test_per_subnet import profile_of
from tests.runtime.test_sync_rules import CHAIN

MOVING = "profile"
"""Each subnet is cut anew, so that layers move between hosts."""

CASES: dict[str, tuple[int, dict[str, Any], dict[str, Any]]] = {
    "two workers": (2, CHAIN, {"workers": 2}),
    "ties, buffers, a learning sampler": (2, {"sampler": "sink.py:cycle"}, {"workers": 3, "plan": MOVING}),
    "two and two": (2, {}, {"workers": 4, "plan": MOVING}),
    "three hosts": (3, {}, {"workers": 3, "plan": MOVING}),
    "bulks": (
        2, {"sync": "bulk:4"},
        {"workers": 2, "chunks": 2, "split": True, "release": "layer", "plan": MOVING},
    ),
    "bulk per worker": (2, {**CHAIN, "sync": "bulk-per-worker"}, {"workers": 2, "plan": MOVING}),
    "delayed": (2, {"shared": "delayed:3"}, {"workers": 2, "in_flight": 3, "plan": MOVING}),
    "delayed, two and two": (2, {"shared": "delayed:2", "optimizer": {"name": "sgd", "momentum": 0.9}},
                             {"workers": 4, "in_flight": 5, "release": "layer", "plan": MOVING}),
    "frozen": (2, {"shared": "frozen"}, {"workers": 2, "plan": MOVING}),
    "a group of two stages": (2, TIED, {"workers": 4, "plan": MOVING}),
    "a stage on several hosts": (2, {**CHAIN, "sync": "bulk:4", "micro_batches": 4, "batch_size": 9},
                                 {"workers": 2, "schedule": "chimera"}),
}  # fmt: skip


LONGER = {"three hosts", "bulk per worker", "frozen", "delayed, two and two"}


@pytest.mark.parametrize("case", [pytest.param(c, marks=[pytest.mark.slow] if c in LONGER else []) for c in CASES])
def test_the_bits_of_the_plain_loop(case: str, tmp_path: Path) -> None:
    hosts, changes, placement = CASES[case]
    made = recipe(**changes, checkpoint=CheckpointRule(every=5))
    if placement.get("plan") == MOVING:
        placement = {**placement, "plan": str(profile_of(changes, tmp_path))}
    one = run(made, tmp_path / "one", engine="pipeline" if made.sync_rule.per_placement else "plain",
              **(placement if made.sync_rule.per_placement else {}))  # fmt: skip
    several = run_on(hosts, made, tmp_path / "several", **placement)
    assert hashes(several) == hashes(one)
    assert not violations(tmp_path / "several")
    assert codes(tmp_path / "several") == repr([0] * (hosts - 1))
    if "plan" in placement and case != "frozen":
        assert several["hosts"]["pushed_bytes"] > 0
