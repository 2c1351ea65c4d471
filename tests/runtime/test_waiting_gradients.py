"""Gradients that wait under `delayed:K`: on a device where they are, until a cut.

gradient of     0    1    2 │ 3    4    5 │
on a GPU        ──── on the device ─┤     ├── host memory, from which the next segment takes them
when full       ──┤ host memory
"""

from __future__ import annotations

import json
import mmap
from pathlib import Path
from typing import Any

import pytest

from sennit.memory.store import HostStore
from sennit.runtime.tasks import Tasks
from tests.runtime.host_gpu import stand_in
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_engines import violations
from tests.runtime.test_sync_rules import CHAIN

PLACED: dict[str, dict[str, Any]] = {
    "one": {"workers": 1},
    "two": {"workers": 2, "split": True},
    "replicas": {"workers": 2, "replicas": 2},
    "budget": {"workers": 2, "budget": 1.0},
    "cuts": {"workers": 2, "cuts": [[6], [2], [7], [0], [1]]},
}
MADE: dict[str, dict[str, Any]] = {
    "adam": {"shared": "delayed:3", "clip": "layer:0.5"},
    "no clipping": {"shared": "delayed:2", "optimizer": {"name": "sgd"}, "clip": "none", "micro_batches": 2},
    "global": {"shared": "delayed:4", "clip": "global:0.5"},
}


def brought(monkeypatch: pytest.MonkeyPatch) -> mmap.mmap:
    """Of which subnets gradients have been brought to host memory, by all workers."""
    seen, keep = mmap.mmap(-1, mmap.PAGESIZE), HostStore.keep_gradient

    def counted(self: HostStore, group: str, seq_id: int, grads: Any) -> None:
        seen[seq_id] = 1
        keep(self, group, seq_id, grads)

    monkeypatch.setattr(HostStore, "keep_gradient", counted)
    return seen


@pytest.mark.parametrize("placed", PLACED)
@pytest.mark.parametrize("case", MADE)
def test_they_come_to_the_host_when_they_wait_at_a_cut(
    case: str, placed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recipe(**{**CHAIN, **MADE[case], "steps": 12})
    lag, placement = made.sharing.lag, {**PLACED[placed]}
    if (cuts := placement.pop("cuts", None)) is not None:
        plan = tmp_path / "cuts.json"
        plan.write_text(json.dumps({"format": "sennit.cuts/1", "cuts": cuts}))
        placement["plan"] = str(plan)
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    stand_in(monkeypatch, PLACED[placed]["workers"])
    seen = brought(monkeypatch)
    run(made, tmp_path / "run", steps=6, device="cuda", **placement)
    result = run(made, tmp_path / "run", resume=True, device="cuda", **placement)
    assert hashes(result) == plain and not violations(tmp_path / "run")
    waited = {cut - k for cut in (6, 12) for k in range(1, lag)}
    assert {x for x in range(12) if seen[x]} == waited


def test_a_full_device_lets_them_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = recipe(**{**CHAIN, "shared": "delayed:3", "clip": "layer:0.5", "steps": 12})
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    stand_in(monkeypatch, 2)
    seen, execute = brought(monkeypatch), Tasks.execute

    def full(self: Tasks, task: Any, subnet: Any) -> None:
        self.make_room()
        execute(self, task, subnet)

    monkeypatch.setattr(Tasks, "execute", full)
    result = run(made, tmp_path / "run", device="cuda", workers=2, in_flight=1)
    assert hashes(result) == plain and not violations(tmp_path / "run")
    assert sum(seen[x] for x in range(12)) > 2, "more than wait at the end"
