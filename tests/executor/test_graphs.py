"""Replayed layers give the bits of eager ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sennit.runtime.share import Parts
from tests.executor.host_graphs import HostGraphs
from tests.runtime.host_gpu import stand_in
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_engines import CASES, violations

GRAPHS = Parts(capturing=HostGraphs)


def counted(folder: Path) -> dict[str, float]:
    """Sums of the executor's counters over workers and cuts."""
    found: dict[str, float] = {}
    for event in json.loads((folder / "trace.json").read_text())["traceEvents"]:
        name = event["name"].partition(",")[0]
        if event["ph"] == "C" and name in ("replayed steps", "eager steps", "graphs", "kept steps"):
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


KEEP: dict[str, Any] = {"device": "cuda", "transport": "host", "executor": "graphs", "activations": "keep"}


@pytest.mark.parametrize("case", HERE)
def test_layers_whose_graphs_keep_what_they_made_do_so_too(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recipe(**CASES[case])
    plain = run(made, tmp_path / "plain", engine="plain")
    stand_in(monkeypatch)
    some = 0.0005  # GiB: for some of those that wait at once
    placed: list[dict[str, Any]] = [
        {},
        {"workers": 2, "split": True, "release": "layer", "activations_gib": some},
        {"workers": 2, "chunks": 2, "in_flight": 4, "budget": 1.0},
    ]
    for i, more in enumerate(placed):
        folder = tmp_path / str(i)
        result = run(made, folder, parts=GRAPHS, **KEEP, **more)
        assert hashes(result) == hashes(plain), more
        assert not violations(folder)
        assert 0 < counted(folder)["kept steps"] <= counted(folder)["replayed steps"], more
        assert result["graphs"]["kept_steps"] == counted(folder)["kept steps"]


def test_asynchronous_reads_keep_what_they_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = recipe(sync="asp:stash", clip="none", shared="strict")
    eager = run(made, tmp_path / "eager", workers=1)
    stand_in(monkeypatch)
    assert hashes(run(made, tmp_path / "graphs", parts=GRAPHS, **KEEP)) == hashes(eager)
    assert counted(tmp_path / "graphs")["kept steps"] > 0
