"""A loss that is not finite, where gradients are added up as soon as their layer has been launched.

worker 0   B of micro-batch 0 ─ added up ─────────────── its loss is fine, handed in ─▶ nothing is missing: step?
worker 1   B of micro-batch 1 ─ added up ─ its loss is not: nothing is handed in           no: it has been told
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sennit.errors import NanLossError
from sennit.recipe import CheckpointRule
from sennit.runtime.load import load_run
from sennit.runtime.share import Parts
from sennit.supernet.hashes import hash_tensors
from sennit.trace.events import read_call
from tests.executor.host_graphs import HostGraphs
from tests.runtime.host_gpu import stand_in
from tests.runtime.runs import recipe, run
from tests.runtime.test_replicas import NORMLESS

SPOILT = {"data": "tied.py:Spoilt", "steps": 40, "micro_batches": 2, "checkpoint": CheckpointRule(every=100)}
PLACED: dict[str, dict[str, Any]] = {
    "split": {"workers": 2, "split": True}, "layers": {"workers": 2, "chunks": 2, "release": "layer"},
    "replicas": {"workers": 2, "replicas": 2},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("clip", ["layer:0.5", "global:1.0"])
@pytest.mark.parametrize(("spoilt", "micro_batch"), [(1, 0), (3, 1)])
def test_nothing_of_its_subnet_is_stepped(
    clip: str, spoilt: int, micro_batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recipe(**{**NORMLESS, **SPOILT, "clip": clip, "batch_size": 4, "data_args": {"n": 97, "spoilt": spoilt}})
    kept: dict[str, tuple[Any, ...]] = {}
    with pytest.raises(NanLossError) as plain:
        run(made, tmp_path / "plain", engine="plain")
    stand_in(monkeypatch, 2)
    for name, placed in PLACED.items():
        placed = {**placed, "device": "cuda", "executor": "graphs", "activations": "keep"}
        with pytest.raises(NanLossError) as caught:
            run(made, tmp_path / name, parts=Parts(capturing=HostGraphs), **placed)
        assert (caught.value.seq_id, caught.value.micro_batch) == (plain.value.seq_id, micro_batch)
        counters = read_call(tmp_path / name / "trace.jsonl").counters
        assert sum(c.value for c in counters if c.counter == "kept steps") > 0
    for name in ("plain", *PLACED):
        state = load_run(tmp_path / name).state
        kept[name] = state.seq_id, hash_tensors(state.weights), hash_tensors(state.optimizer)
    assert len(set(kept.values())) == 1, kept
