"""Several workers on one GPU give the bits of the plain loop there. `test_transport.py` has what needs no GPU."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from sennit.cli import main
from sennit.memory import cuda
from sennit.runtime.forked import in_child
from tests.executor.test_graphs import counted
from tests.gpus import apart, gpu_count, needs_gpu
from tests.memory.test_store import filled, store
from tests.runtime.runs import HERE, hashes, recipe, run
from tests.runtime.test_budget import share_of
from tests.runtime.test_chimera import TIED
from tests.runtime.test_engines import violations
from tests.runtime.test_per_subnet import profile_of
from tests.runtime.test_replicas import NORMLESS
from tests.runtime.test_sync_rules import CHAIN

EAGER: list[dict[str, Any]] = [{"workers": 2}, {"workers": 4}, {"workers": 2, "transport": "host"}]
IN_PIECES = {"chunks": 2, "split": True, "release": "layer"}
GRAPHS = {"workers": 4, "executor": "graphs"}
PROFILE, HALF_MORE = "by a profile", -1.5
"""Stand for a file, and for so many times the least budget; they are made when the case is run."""

CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "everything": ({"steps": 8, "micro_batches": 4}, [*EAGER, GRAPHS, {"workers": 2, "plan": PROFILE}]),
    "replicas": (
        {**NORMLESS, "micro_batches": 4},
        [{"workers": 4, "replicas": 2, **IN_PIECES}, {"workers": 2, "replicas": 2}],
    ),
    "bulk": (
        {**TIED, "sync": "bulk:4", "micro_batches": 2},
        [{"workers": 2, "schedule": "gpipe"}, {"workers": 4, "schedule": "chimera"}],
    ),
    "clip by layer, chain": ({**CHAIN, "steps": 12}, [{"workers": 1}, {"workers": 2}, GRAPHS]),
    "clip by layer": ({"steps": 8, "clip": "layer:0.5"}, [{"workers": 1}, {"workers": 2}, GRAPHS]),
    "budget": (
        {**CHAIN, "steps": 12, "shared": "delayed:3"},
        [{"workers": 2, "budget": HALF_MORE, "ahead": 2}, {**GRAPHS, "budget": HALF_MORE, **IN_PIECES, "chunks": 1}],
    ),
}


@needs_gpu
@pytest.mark.parametrize("case", CASES)
def test_workers_of_one_gpu_give_the_bits_of_the_plain_loop(case: str, tmp_path: Path) -> None:
    assert apart(differing, case, tmp_path, gpu_count()) == []


def differing(case: str, folder: Path, gpus: int, plain_on: str = "cuda") -> list[str]:
    """What of a case is not as it should be."""
    changes, placed = CASES[case]
    made = recipe(**changes)
    plain = in_child(lambda: hashes(run(made, folder / "plain", engine="plain", device=plain_on)))
    found: list[str] = []
    for i, placement in enumerate(placed):
        if placement.get("transport") == "host" and gpus == 1:
            continue  # it is what one GPU has anyway
        given = dict(placement)
        if given.get("plan") == PROFILE:
            given["plan"] = in_child(lambda: str(profile_of(changes, folder)))
        if given.get("budget") == HALF_MORE:
            given["budget"] = 1.5 * share_of(made)[0]
        result = run(made, folder / f"{i}", device="cuda", **given)
        found += [f"{placement}: other bits"] * (hashes(result) != plain)
        found += [f"{placement}: {broken}" for broken in violations(folder / f"{i}")]
        found += [f"{placement}: says {result['gpus']} GPUs"] * (result["gpus"] != min(gpus, placement["workers"]))
        if placement.get("executor") == "graphs":
            counts = counted(folder / f"{i}")
            found += [f"{placement}: nothing was replayed, {counts}"] * (not counts["replayed steps"])
        if "budget" in placement:
            found += [f"{placement}: nothing was fetched"] * (not result["slots"]["fetches"])
    return found


RECIPE = """
space = "chain.py:Chain"
data = "chain.py:Data"
batch_size = 12
micro_batches = 2
steps = 6
lr = 0.1
optimizer = {name = "adam"}
"""


@needs_gpu
def test_train_and_verify(tmp_path: Path) -> None:
    assert apart(verified, tmp_path, "cuda") == []


def verified(folder: Path, device: str) -> list[str]:
    """What `sennit verify` finds of a run on four workers."""
    shutil.copy(HERE / "chain.py", folder)
    (folder / "r.toml").write_text(RECIPE)
    words = ["train", str(folder / "r.toml"), "--device", device, "--workers", "4", "--out", str(folder / "run")]
    if main(words):
        return ["it did not train"]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = main(["verify", str(folder / "run"), "--workers", "2", "--json"])
    rows = json.loads(said.getvalue())["runs"]
    good = code == 0 and [row["name"] for row in rows] == ["recorded", "plain", "2 workers"]
    return [] if good else [said.getvalue()]


@needs_gpu
def test_memory_that_is_not_registered_leaves_no_error_behind(tmp_path: Path) -> None:
    assert apart(left_behind) == []


def left_behind() -> list[str]:
    """What is wrong once CUDA has refused to register memory: here because it is registered already."""
    torch.cuda.set_device(0)
    host = filled(store())
    registered = [cuda.pin(host.memory, torch.device("cuda", 0)) for _ in range(2)]
    if registered[0] or not registered[1]:
        return [f"registered: {registered}"]
    (total,) = torch.ones(3, device="cuda").sum(dim=0, keepdim=True).tolist()
    slot = torch.zeros(len(host.memory), dtype=torch.uint8, device="cuda")
    slot.copy_(torch.frombuffer(host.memory, dtype=torch.uint8))
    same = torch.equal(slot.cpu(), torch.frombuffer(host.memory, dtype=torch.uint8))
    return ["a sum is wrong"] * (total != 3.0) + ["a copy is wrong"] * (not same)
