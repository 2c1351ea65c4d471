"""Against torch's own pipeline: the same gradients to the bit on static networks; two where not, with the reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

import sennit as sn
from tests.runtime.runs import hashes, run
from tests.runtime.torch_pipe import SCHEDULES, goes, static

ROOT = Path(__file__).parents[2]
EQUAL = ("Perceptron", "Attentive", "Convolved", "Branched", "Opened")
Gradients = dict[tuple[str, str], dict[str, Tensor]]


def torch_pipeline(folder: Path, *names: str, only: str = "") -> list[subprocess.CompletedProcess[str]]:
    """Both ranks of torch's pipeline, run to their end."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.runtime.torch_pipe"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(folder), ",".join(names), only],
            cwd=ROOT,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    told = [rank.communicate(timeout=300)[1] for rank in ranks]
    return [subprocess.CompletedProcess(r.args, r.returncode, "", t) for r, t in zip(ranks, told, strict=True)]


@pytest.fixture(scope="module")
def gradients(tmp_path_factory: pytest.TempPathFactory) -> Gradients:
    """Of torch's pipeline on two processes, by network and schedule."""
    folder = tmp_path_factory.mktemp("torch")
    ended = torch_pipeline(folder, *EQUAL, "Dropped")
    assert [rank.returncode for rank in ended] == [0, 0], ended[0].stderr
    halves = [torch.load(folder / f"{r}.pt") for r in range(2)]
    return {key: {**halves[0][key], **halves[1][key]} for key in halves[0]}


def after_a_step(name: str, grads: dict[str, Tensor]) -> str:
    """Hash of the weights after torch's optimizer has stepped with these gradients."""
    model = static(name).build_model()
    for parameter_name, parameter in model.named_parameters():
        parameter.grad = grads[parameter_name]
    torch.optim.SGD(model.parameters(), lr=0.5).step()
    return sn.state_hash(model)


@pytest.mark.parametrize("name", EQUAL)
def test_the_bits_of_torchs_schedules(name: str, gradients: Gradients, tmp_path: Path) -> None:
    for schedule in SCHEDULES:
        if not goes(name, schedule):
            continue
        chunks = 2 if schedule == "interleaved" else 1
        ours = run(static(name), tmp_path / schedule, workers=2, schedule=schedule, chunks=chunks)
        assert ours["weights_sha256"] == after_a_step(name, gradients[name, schedule]), schedule


def test_masks_depend_on_torchs_schedule_and_not_on_ours(gradients: Gradients, tmp_path: Path) -> None:
    """torch draws from one generator, in the order in which tasks happen to run."""
    ours = {s: run(static("Dropped"), tmp_path / s, workers=2, schedule=s)["weights_sha256"] for s in ("gpipe", "1f1b")}
    plain = run(static("Dropped"), tmp_path / "plain", engine="plain")["weights_sha256"]
    assert {*ours.values()} == {plain}
    assert after_a_step("Dropped", gradients["Dropped", "gpipe"]) != plain


def test_torch_sends_no_tensor_with_other_strides(tmp_path: Path) -> None:
    ours = run(static("Strided"), tmp_path / "ours", workers=2, schedule="gpipe")
    assert hashes(ours) == hashes(run(static("Strided"), tmp_path / "plain", engine="plain"))
    ended = torch_pipeline(tmp_path, "Strided")
    assert any("tensor has to be contiguous" in rank.stderr for rank in ended), [rank.stderr for rank in ended]


def test_torch_splits_no_backward_behind_a_view(tmp_path: Path) -> None:
    for schedule in ("zero-bubble", "zbv"):
        ours = run(static("Viewed"), tmp_path / schedule, workers=2, schedule=schedule)
        assert hashes(ours) == hashes(run(static("Viewed"), tmp_path / f"{schedule} plain", engine="plain"))
    ended = torch_pipeline(tmp_path, "Viewed", only="zero-bubble")
    assert any("Can't detach views in-place" in rank.stderr for rank in ended), [rank.stderr for rank in ended]
