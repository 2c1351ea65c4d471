"""The host store: places, versions, delayed slots, and state in and out."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sennit as sn
from sennit.memory.cpu import CpuStore
from sennit.memory.layout import BOUNDARY, Layout
from sennit.memory.store import HostStore
from sennit.program.groups import Groups
from sennit.runtime.forked import in_children
from sennit.supernet.sync import Shared


class Net(sn.ModelSpace):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 2)
        self.norm = nn.BatchNorm1d(2)
        self.empty = nn.Parameter(torch.empty(0))


def store(shared: str = "strict", optimizer: str = "adam", whole: bool = False) -> HostStore:
    with torch.device("meta"):
        net = Net()
    written = [f"norm.{name}" for name, _ in net.norm.named_buffers()]
    return HostStore(net, Groups(net, written), frozenset({"a"}), Shared.parse(shared), optimizer, {}, whole)


def filled(host: HostStore) -> HostStore:
    for name, tensor in host.weights().items():
        host.home(name).copy_(torch.arange(tensor.numel()).reshape(tensor.shape).to(tensor.dtype))
    return host


def test_tensors_lie_on_boundaries_with_their_strides() -> None:
    layout = Layout()
    like = torch.empty(2, 3, 4).permute(2, 0, 1)
    region = layout.region([("x", like), ("y", torch.empty((), dtype=torch.int64)), ("z", torch.empty(0))])
    assert [place.offset % BOUNDARY for place in region.places.values()] == [0, 0, 0]
    view = region.places["x"].view(torch.zeros(region.nbytes, dtype=torch.uint8))
    assert view.shape == like.shape and view.stride() == like.stride()


def test_one_step_is_torchs_own() -> None:
    host = filled(store())
    cpu = CpuStore(host)
    weight = host.home("a.weight").clone()
    reference = nn.Parameter(weight.clone())
    optimizer = torch.optim.Adam([reference], lr=0.1, foreach=False)
    for version in range(3):
        grad = torch.full_like(weight, version + 1.0)
        reference.grad = grad.clone()
        optimizer.step()
        cpu.step("a", {"a.weight": grad}, 0.1, version)
        assert host.version("a") == version
        assert torch.equal(host.weights()["a.weight"], reference.detach())
    state = host.optimizer_state()
    assert set(state) == {"a.weight.exp_avg", "a.weight.exp_avg_sq", "a.weight.step"}, "a.bias has not stepped"
    assert torch.equal(state["a.weight.exp_avg"], optimizer.state[reference]["exp_avg"])


def test_delayed_groups_keep_k_versions() -> None:
    host = filled(store("delayed:3", "sgd"))
    cpu = CpuStore(host)
    seen = {-1: host.current("a")["a.weight"].clone()}
    for x in range(5):
        host.keep_gradient("a", x, {"a.weight": torch.ones(2, 3), "a.bias": None})
        kept: Mapping[str, Tensor] | None = host.kept_gradient("a", x)
        assert kept is not None and set(kept) == {"a.weight"}
        cpu.step("a", dict(kept), 1.0, x)
        seen[x] = seen[x - 1] - 1.0
        for version in range(max(-1, x - 2), x + 1):
            assert cpu.holds("a", version)
            assert torch.equal(cpu.acquire("a", version)["a.weight"].detach(), seen[version])
    assert not cpu.holds("a", 1)


@pytest.mark.parametrize("shared", ["strict", "delayed:2"])
def test_what_is_taken_out_can_be_put_back(shared: str) -> None:
    host = filled(store(shared))
    cpu = CpuStore(host)
    cpu.step("a", {"a.weight": torch.ones(2, 3)}, 0.1, 0)
    if shared != "strict":
        host.keep_gradient("a", 1, {"a.weight": torch.full((2, 3), 2.0), "a.bias": torch.ones(2)})
    cpu.move("norm#buffers", (4, 1, 0))
    other = store(shared)
    other.restore(host.weights(), host.optimizer_state(), host.versions())
    assert other.versions() == host.versions()
    for mine, theirs in ((other.weights(), host.weights()), (other.optimizer_state(), host.optimizer_state())):
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_a_forward_can_be_taken_back_until_the_next_subnet_writes() -> None:
    host = filled(store())
    cpu = CpuStore(host)
    group = "norm#buffers"
    cpu.move(group, (0, 1, 0))
    before = host.current(group)["norm.running_mean"].clone()
    cpu.remember(group)
    cpu.buffers(group)["norm.running_mean"].fill_(float("nan"))
    cpu.move(group, (1, 0, 0))
    assert host.take_back(group, 1)
    assert torch.equal(host.current(group)["norm.running_mean"], before)
    assert host.versions()[group] == [0, 1, 0]
    assert host.take_back(group, 1), "nothing of subnet 1 is left to undo"
    cpu.move(group, (2, 0, 0))
    assert not host.take_back(group, 1), "subnet 2 has written since"


def test_views_have_version_counters_of_their_own() -> None:
    host = store()
    weight, bias = host.home("a.weight"), host.home("a.bias")
    before = bias._version
    weight.add_(1)
    assert bias._version == before


def test_all_pages_are_asked_for_and_no_bit_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    host, parts = filled(store()), list[partial[None]]()
    before = bytes(host.memory)

    def at_once(functions: Sequence[Callable[[], Any]], /) -> list[Any]:
        parts.extend(function for function in functions if isinstance(function, partial))
        return in_children(functions)

    host.populate(at_once, 3)
    assert not parts, "small stores are not worth processes"
    monkeypatch.setattr("sennit.memory.store.MANY", 0)
    host.populate(at_once, 3)
    assert len(parts) == 3 and bytes(host.memory) == before
    assert sum(len(part.args[0]) for part in parts) == -(-len(before) // mmap.PAGESIZE)
