"""Clipping by layer on a device: which groups, when their steps come, and that no bit changes.

Memory of the host stands in for a GPU's; `tests/supernet/test_factors.py` has the arithmetic, also on a GPU.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

import sennit as sn
from sennit.memory import cuda
from sennit.memory.cuda import CudaStore
from sennit.memory.gradients import Gradients
from sennit.memory.store import HostStore
from sennit.program.groups import Groups
from sennit.runtime import stepping as stepping_of
from sennit.runtime.stepping import Stepping
from sennit.runtime.tasks import Tasks
from sennit.runtime.told import Told
from sennit.runtime.worker import Worker
from sennit.supernet.bits import same_bits
from sennit.supernet.sync import Shared
from tests.runtime.host_gpu import stand_in
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_engines import violations
from tests.runtime.test_stepping import GROUPS, Called, gradient, laid_out, parts, subnet_of
from tests.runtime.test_sync_rules import CHAIN

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one": ({}, {"workers": 1}),
    "no factor of 1": ({"clip": "layer:1e-3", "optimizer": {"name": "sgd"}}, {"workers": 1}),
    "two": ({}, {"workers": 2}),
    "list": ({}, {"workers": 2, "schedule": "1f1b"}),
    "layers": ({}, {"workers": 3, "release": "layer", "chunks": 2, "split": True}),
    "budget": ({}, {"workers": 2, "budget": 1.0}),
    "bulk": ({"sync": "bulk:4"}, {"workers": 2}),
    "delayed": ({"shared": "delayed:3"}, {"workers": 1}),
    "chain": (CHAIN, {"workers": 2}),
}
"""Recipe and placement. All groups are clipped on the device."""


def counted(monkeypatch: pytest.MonkeyPatch) -> mmap.mmap:
    """Whether steps have come of clipping on the device, and of norms that the host was told; of all workers."""
    seen = mmap.mmap(-1, mmap.PAGESIZE)
    there, told = Stepping.by_layer_there, Stepping.by_layer

    def on_device(self: Stepping) -> None:
        seen[0] = 1
        there(self)

    def by_host(self: Stepping, arrived: Any) -> None:
        seen[1] = 1
        told(self, arrived)

    nap = Worker.nap

    def idle(self: Worker) -> None:
        assert not self.stepping.there, "steps that could be launched"
        nap(self)

    monkeypatch.setattr(Stepping, "by_layer_there", on_device)
    monkeypatch.setattr(Stepping, "by_layer", by_host)
    monkeypatch.setattr(Worker, "nap", idle)
    return seen


@pytest.mark.parametrize("case", CASES)
def test_clipping_on_a_device_gives_the_bits_of_the_plain_loop(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, placed = CASES[case]
    made = recipe(**{"clip": "layer:0.5", **changes, "steps": 12})
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    stand_in(monkeypatch, placed["workers"])
    seen = counted(monkeypatch)
    result = run(made, tmp_path / "run", device="cuda", **placed)
    assert hashes(result) == plain and not violations(tmp_path / "run")
    assert (seen[0], seen[1]) == (1, 0)


def test_what_has_been_stepped_is_read_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Subnets that follow one another: behind the steps of one, the first thing to do is the next one's forward."""
    made = recipe(**{**CHAIN, "steps": 8})
    stand_in(monkeypatch, 1)
    stepped, seen = [False], mmap.mmap(-1, mmap.PAGESIZE)
    there, execute, idle = Stepping.by_layer_there, Tasks.execute, Worker.hear_awaited

    def on_device(self: Stepping) -> None:
        there(self)
        stepped[0] = True

    def launched(self: Tasks, task: Any, subnet: Any) -> None:
        seen[0] |= stepped[0]
        stepped[0] = False
        execute(self, task, subnet)

    def nothing(self: Worker) -> bool:
        assert not stepped[0] or not self.subnets, "idle behind a step"
        return idle(self)

    monkeypatch.setattr(Stepping, "by_layer_there", on_device)
    monkeypatch.setattr(Tasks, "execute", launched)
    monkeypatch.setattr(Worker, "hear_awaited", nothing)
    run(made, tmp_path / "run", device="cuda", workers=1)
    assert seen[0]


def test_asynchronous_workers_wait_for_no_norm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = recipe(**{**CHAIN, "sync": "asp:none", "clip": "layer:0.1", "steps": 12, "micro_batches": 2})
    found = hashes(run(made, tmp_path / "cpu", workers=3))
    stand_in(monkeypatch, 3)
    seen = counted(monkeypatch)
    assert hashes(run(made, tmp_path / "there", device="cuda", workers=3)) == found
    assert (seen[0], seen[1]) == (1, 0)
    monkeypatch.setattr(stepping_of, "computable", lambda grads: False)
    assert hashes(run(made, tmp_path / "told", device="cuda", workers=3)) == found
    assert (seen[0], seen[1]) == (1, 1)


def test_a_clip_of_the_whole_subnet_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = recipe(steps=6, clip="global:0.5")
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    stand_in(monkeypatch)
    seen = counted(monkeypatch)
    assert hashes(run(made, tmp_path / "run", device="cuda", workers=2)) == plain
    assert (seen[0], seen[1]) == (0, 0)


def test_probes_see_norms_before_clipping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = recipe(steps=6, clip="layer:0.1")
    plain: list[dict[str, Any]] = []
    seen: list[dict[str, Any]] = []
    expected = hashes(run(made, tmp_path / "plain", engine="plain", probes=(plain.append,)))
    stand_in(monkeypatch)
    assert hashes(run(made, tmp_path / "run", device="cuda", workers=2, probes=(seen.append,))) == expected
    assert [event["gradient_norms"] for event in seen] == [event["gradient_norms"] for event in plain]


# -- one worker's steps


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "pin", lambda memory, device: "not here")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(synchronize=lambda: None))


class Sometimes(Told):
    """Is there when the test says so."""

    now = False

    def there(self) -> bool:
        return self.now


def given(stepping: Stepping, host: HostStore, y: int, group: str) -> Any:
    """Gradients of a group are complete in subnet `y`; gives the subnet."""
    subnet = subnet_of(y)
    views = host.views[group][0]
    for j in range(2):
        stepping.part(subnet, group, j, {(n, -1): gradient(y, j, n, views[n]) for n in GROUPS[group]})
    return subnet


@pytest.mark.usefixtures("no_gpu")
def test_steps_that_wait_for_norms_hold_up_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """`norm` has gradients of a type that is clipped by the host: its norms are told. `a` has not."""
    monkeypatch.setattr(stepping_of, "Told", Sometimes)
    monkeypatch.setattr(Sometimes, "now", False)
    monkeypatch.setattr(stepping_of, "computable", lambda grads: not any(name.startswith("norm") for name in grads))
    host, made, stepping = parts("cuda", "layer:0.5")
    assert not stepping.waits() and not stepping.told()
    early = given(stepping, host, 3, "norm")
    stepping.ask()
    assert stepping.waits() and not stepping.told() and stepping.next_step() == 3
    late = given(stepping, host, 4, "a")
    assert stepping.waits() and stepping.told()
    assert stepping.next_step() == 4, "a backward of 3 need not wait, but one of 4 goes before this step"
    monkeypatch.setattr(Sometimes, "now", True)
    assert stepping.next_step() == 3
    monkeypatch.setattr(Sometimes, "now", False)
    stepping.look()
    assert late.unfinished == {"norm"} and early.unfinished == {"norm", "a"} and made.version("a") == 4
    assert stepping.waits() and not stepping.told()
    monkeypatch.setattr(Sometimes, "now", True)
    stepping.look()
    assert early.unfinished == {"a"} and made.version("norm") == 3
    assert not stepping.waits() and not stepping.told() and not stepping.complete


@pytest.mark.usefixtures("no_gpu")
def test_a_group_without_any_gradient_is_stepped_beside_others() -> None:
    host, made, stepping = parts("cuda", "layer:0.5")
    subnet = subnet_of(0)
    nothing: dict[Any, Tensor | None] = {(name, -1): None for name in GROUPS["norm"]}
    for j in range(2):
        stepping.part(subnet, "norm", j, nothing)
    stepping.look()
    assert subnet.unfinished == {"a"} and made.version("norm") == 0
    for j in range(2):
        stepping.part(subnet, "a", j, {(n, -1): gradient(0, j, n, host.views["a"][0][n]) for n in GROUPS["a"]})
    stepping.look()
    assert not subnet.unfinished and made.version("a") == 0


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_types_are_clipped_with_what_the_host_is_told(dtype: torch.dtype) -> None:
    """Those are multiplied by a factor that is not rounded to float32 first."""
    host, _, stepping = parts("cuda", "layer:0.5")
    seen: list[Gradients] = []
    stepping.step = lambda subnet, group, grads: seen.append(grads)  # type: ignore[method-assign]
    grads = {n: gradient(0, 0, n, host.views["a"][0][n]).to(dtype) for n in GROUPS["a"]}
    expected = {name: grad.clone() for name, grad in grads.items()}
    by = stepping_of.factor(0.5, stepping_of.fold_norms(stepping_of.grad_norms(expected)))
    stepping.clipped(subnet_of(0), "a", Gradients(grads))
    assert not stepping.there
    stepping.look()
    assert same_bits([*seen[0].values()], [grad.mul_(by) for grad in expected.values()])


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(4, 4) for _ in range(6))


class Layers(sn.ModelSpace):
    def __init__(self) -> None:
        super().__init__()
        for i in range(13):
            self.add_module(f"layer{i}", Layer())


@pytest.mark.usefixtures("no_gpu")
def test_a_subnet_is_clipped_and_stepped_by_few_calls() -> None:
    """13 groups of 12 parameters, each in one piece, Adam as on a GPU; a call is at least a launch there. Those that a
    group adds are its piece's product with its factor, launched by one call for all."""
    counts: list[int] = []
    for n in (13, 3):
        with torch.device("meta"):
            net = Layers()
        host = HostStore(net, Groups(net, []), frozenset(), Shared.parse("strict"), "adam", {})
        _, made, stepping = parts("cuda", "layer:0.5", host=host)
        assert isinstance(made, CudaStore)
        made.due.optimizer.optimizer.param_groups[0]["foreach"] = True
        groups = [group.name for group in host.groups.all][:n]
        for y in range(2):
            subnet = subnet_of(y, groups)
            for group in groups:
                views = made.acquire(group, y - 1)
                assert len(views) == 12
                there = {name: gradient(y, 0, name, view) for name, view in views.items()}
                laid = laid_out(host, group, cast("Any", there), together=True)
                grads = Gradients({name: grad for (name, _), grad in laid.items() if grad is not None})
                assert grads.piece is not None
                stepping.clipped(subnet, group, grads)
            with Called() as called:
                stepping.ask()
                stepping.look()
            assert not subnet.unfinished
        counts.append(len(called.names))
    assert counts[0] == counts[1] and counts[0] < 45, counts
