"""Replayed layers give the bits of eager ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sennit.runtime.share import Parts
from tests.executor.host_graphs import HostGraphs
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_engines import CASES, violations

GRAPHS = Parts(capturing=HostGraphs)


def counted(folder: Path) -> dict[str, float]:
    """Sums of the executor's counters over workers and cuts."""
    found: dict[str, float] = {}
    for event in json.loads((folder / "trace.json").read_text())["traceEvents"]:
        name = event["name"].partition(",")[0]
        if event["ph"] == "C" and name in ("replayed steps", "eager steps", "graphs"):
            found[name] = found.get(name, 0.0) + event["args"]["value"]
    return found


HERE = ("strict", "delayed", "frozen", "adamw-one-micro-batch", "bf16", "bulk-layer-clip")


@pytest.mark.parametrize("case", HERE)
def test_replayed_layers_give_the_bits_of_the_plain_loop(case: str, tmp_path: Path) -> None:
    made = recipe(**CASES[case])
    plain = run(made, tmp_path / "plain", engine="plain")
    for workers, placed in ((1, {}), (2, {"split": True, "release": "layer"})):
        folder = tmp_path / str(workers)
        result = run(made, folder, workers=workers, parts=GRAPHS, **placed)
        assert hashes(result) == hashes(plain), f"{workers} workers"
        assert not violations(folder)
        assert counted(folder)["replayed steps"] > 0


def test_asynchronous_reads_with_copies(tmp_path: Path) -> None:
    made: Any = recipe(sync="asp:stash", clip="none", shared="strict")
    eager = run(made, tmp_path / "eager", workers=1)
    assert hashes(run(made, tmp_path / "graphs", workers=1, parts=GRAPHS)) == hashes(eager)
