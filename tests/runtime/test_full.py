"""A full device, wherever it is met: known by what is said, tried again where that is possible, told in few lines."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch

from sennit.commands.failure import failure_of
from sennit.commands.train import told
from sennit.errors import RunError, UserError
from sennit.recipe import CheckpointRule, Placement
from sennit.runtime import child, full, plain, refuse
from sennit.runtime.ending import hear_out
from sennit.runtime.full import is_full, refused_if_swallowed
from sennit.runtime.request import Request
from sennit.runtime.retry import Retry
from sennit.runtime.share import Parts
from sennit.runtime.train import train
from sennit.runtime.worker import Worker
from tests.gpus import apart, needs_gpu_alone
from tests.runtime.runs import hashes, recipe, run

CPU = torch.device("cpu")
FULL: list[RuntimeError] = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB"),
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
]
OTHER: list[Exception] = [
    RuntimeError("CUDA error: device-side assert triggered"), ValueError("out of memory"), RunError("out of memory"),
]  # fmt: skip


def test_it_is_known_by_what_is_said() -> None:
    assert all(map(is_full, FULL)) and not any(map(is_full, OTHER))


@pytest.mark.parametrize("error", FULL, ids=lambda error: str(error)[:20])
def test_libraries_below_torch_are_tried_again_too(error: RuntimeError) -> None:
    calls: list[str] = []

    def call() -> str:
        calls.append("call")
        if len(calls) == 1:
            raise error
        return "there"

    assert Retry(lambda: calls.append("room"), CPU)(call, lambda: calls.append("undo")) == "there"
    assert calls == ["call", "undo", "room", "call"]


def test_other_errors_are_raised_at_once() -> None:
    calls: list[str] = []

    def call() -> None:
        calls.append("call")
        raise RuntimeError("CUDA error: device-side assert triggered")

    with pytest.raises(RuntimeError, match="device-side"):
        Retry(lambda: calls.append("room"), CPU)(call, lambda: calls.append("undo"))
    assert calls == ["call"]


class FullOnce:
    """An executor that a library below torch fails once, after everything has been done."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.left = inner, {"forward", "backward"}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def forward(self, *arguments: Any) -> Any:
        return self.once("forward", self.inner.forward(*arguments))

    def backward(self, *arguments: Any) -> Any:
        return self.once("backward", self.inner.backward(*arguments))

    def once(self, kind: str, found: Any) -> Any:
        if kind in self.left:
            self.left.remove(kind)
            raise FULL[2]
        return found


def test_a_run_gets_over_it(tmp_path: Path) -> None:
    made = recipe()
    expected = hashes(run(made, tmp_path / "plain", engine="plain"))
    result = run(made, tmp_path / "full", parts=Parts(executor=FullOnce))
    assert hashes(result) == expected and result["tasks_run_again"] == 2
    assert any("2 tasks ran again" in line for line in told({**result, "out": "run"}))


@pytest.mark.parametrize("error", FULL, ids=lambda error: str(error)[:20])
def test_a_device_that_is_full_from_the_start(
    error: RuntimeError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any, **more: Any) -> Any:
        raise error

    made = recipe()
    with monkeypatch.context() as here:
        here.setattr(refuse, "dry_run", full)
        refused(r"the device is full while layers are tried", lambda: run(made, tmp_path / "dry"))
    assert not (tmp_path / "dry").exists()
    with monkeypatch.context() as here:
        here.setattr(child, "with_budget", full)
        refused(
            r"(?s)worker 0 failed: its device is full before .*nothing had been",
            lambda: run(made, tmp_path / "w"),
        )
    with monkeypatch.context() as here:
        here.setattr(plain.PlainEngine, "buffers_of", full)
        refused(r"(?s)the device is full .*--offload", lambda: run(made, tmp_path / "plain", engine="plain"))
    for folder, engine in (("w", "pipeline"), ("plain", "plain")):
        assert run(made, tmp_path / folder, engine=engine, resume=True)["steps"] == made.steps


def refused(told: str, call: Any) -> None:
    with pytest.raises(RunError, match=told) as raised:
        call()
    failure = failure_of(raised.value)
    assert (failure.exit, failure.kind) == (1, "failed") and len(failure.short().splitlines()) <= 40


class Swallowing(FullOnce):
    """An executor with a library that meets a full device in the middle of a run, and goes on in another way.

    Args:
        at: the call of `kind` that it is.
        fails: then the call fails for want of memory as well.
    """

    times = 0

    def __init__(self, inner: Any, kind: str, at: int = 20, fails: bool = False) -> None:
        super().__init__(inner)
        self.kind, self.calls_left, self.fails = kind, at, fails

    def once(self, kind: str, found: Any) -> Any:
        self.calls_left -= kind == self.kind
        if not self.calls_left:
            self.calls_left = -1
            Swallowing.times += 1 + self.fails
            if self.fails:
                raise FULL[0]
        return found


@pytest.mark.parametrize("fails", [False, True], ids=["goes on", "fails after that"])
@pytest.mark.parametrize(
    ("kind", "rule"), [("forward", {}), ("backward", {}), ("backward", {"sync": "asp:none", "clip": "layer:1.0"})]
)
def test_a_full_device_that_nobody_told_of_ends_the_run(
    kind: str, rule: dict[str, Any], fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have other bits, and it may keep to them, so running the task again would not do."""
    made = recipe(**rule, checkpoint=CheckpointRule(every=4))
    expected = hashes(run(made, tmp_path / "plain"))
    monkeypatch.setattr(full, "times_full", lambda device: Swallowing.times)
    parts = Parts(executor=lambda inner: Swallowing(inner, kind, fails=fails))
    refused(
        r"(?s)worker 0 failed: the device was full while .*\(found full: 1\).*--resume",
        lambda: run(made, tmp_path / "o", parts=parts),
    )
    again = run(made, tmp_path / "o", resume=True)
    assert again["steps"] == made.steps and (hashes(again) == expected or "sync" in rule)


def test_nor_does_the_plain_loop_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(10))
    made = recipe()
    with monkeypatch.context() as here:
        here.setattr(full, "times_full", lambda device: next(times))
        refused("the device was full while", lambda: run(made, tmp_path / "plain", engine="plain"))
    assert run(made, tmp_path / "plain", engine="plain", resume=True)["steps"] == made.steps


def test_what_is_told_is_not_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    for count, error in ((1, torch.OutOfMemoryError), (2, RunError)):
        times = iter([0, count])
        monkeypatch.setattr(full, "times_full", lambda device, times=times: next(times))
        with pytest.raises(error), refused_if_swallowed(CPU):
            raise FULL[0]


def weights_gradient_of_a_convolution(full: bool) -> tuple[str, bool]:
    """What came of it: its bits, or which error; and whether a full device was noticed."""
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    x, w, g = (torch.randn(*shape, device="cuda") for shape in ((64, 256, 16), (256, 256, 1), (64, 256, 16)))
    w.requires_grad_()

    def bits() -> str:
        grad = torch.autograd.grad(torch.nn.functional.conv1d(x, w), w, g)[0]
        return hashlib.sha256(grad.cpu().numpy().tobytes()).hexdigest()

    found = bits()
    held = hold_all() if full else []
    try:
        with refused_if_swallowed(x.device):
            found = bits()
    except RuntimeError as error:
        found = type(error).__name__
    del held
    return found, found == "RunError"


def hold_all() -> list[torch.Tensor]:
    """The memory of the device, but for what torch has kept and some kilobytes."""
    held: list[torch.Tensor] = []
    size = torch.cuda.mem_get_info()[0]
    while size >= 1 << 21:
        try:
            held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    return held


def with_room_and_without() -> list[tuple[str, bool]]:
    return [weights_gradient_of_a_convolution(full) for full in (False, True)]


@needs_gpu_alone
def test_a_convolution_without_room_to_work_in_is_noticed() -> None:
    (right, _), (found, noticed) = apart(with_room_and_without)
    assert noticed or found in (right, "OutOfMemoryError"), found


def test_what_could_not_be_pinned_is_shown() -> None:
    result = {
        "out": "run", "steps": 1, "subnets_per_s": 1.0, "bubble": None, "last_loss": None, "engine": "pipeline",
        "workers": 1, "seconds": 1.0, "weights_sha256": "a", "optimizer_sha256": "b", "losses_sha256": "c",
        "comparable": True, "first": 0, "pinned": False, "pinning_refused": "cudaHostRegister of 8 bytes: no",
    }  # fmt: skip
    assert any("not pinned: cudaHostRegister of 8 bytes: no" in line for line in told(result))
    assert not any("pinned" in line for line in told({**result, "pinned": True}))


def test_a_worker_tells_that_its_memory_is_not_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the first cut, and in the result."""

    def telling(worker: Worker) -> None:
        worker.launcher.send(("unpinned", "nobody may"))
        hear_out(worker)

    monkeypatch.setattr(child, "hear_out", telling)
    notes: list[str] = []
    request = Request(recipe=recipe(), placement=Placement(workers=2), out=tmp_path / "run")
    result = train(request, lambda progress: notes.append(progress.note))
    assert (result["pinned"], result["pinning_refused"]) == (False, "nobody may")
    assert sum("could not be pinned (nobody may)" in note for note in notes) == 1
    assert "pinned" not in run(recipe(), tmp_path / "plain", engine="plain")


def test_bad_input_is_no_full_device() -> None:
    assert not is_full(UserError("out of memory"))
