"""How tensors travel between workers on GPUs; without one."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from sennit.errors import RecipeError, UserError
from sennit.recipe import Placement
from sennit.runtime import gpu
from sennit.runtime.channel import Arena, Message, SharedMemoryChannel
from sennit.runtime.control import Line
from sennit.runtime.fingerprint import different
from sennit.runtime.share import Parts
from sennit.runtime.transport import device_of, shared_gpus
from tests.memory.late import LateDevice
from tests.runtime.host_gpu import stand_in
from tests.runtime.lines import OPEN
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_engines import violations

SENT: list[Tensor | None] = [
    torch.arange(6.0).reshape(2, 3), None, torch.tensor(7), torch.empty(0, 2), torch.tensor([True, False, True]),
    torch.randn(4, 5).t(), torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last), torch.randn(3).bfloat16(),
]  # fmt: skip


class Watched(Line):
    """A line on which nothing is said while copies of its device are under way."""

    device: LateDevice

    def send(self, message: Any) -> None:
        assert not any(self.device.under_way), f"{message[0]} before its copies are done"
        super().send(message)


def late_channels(size: int) -> list[SharedMemoryChannel]:
    """Two, on devices whose copies are done only when somebody waits for them."""
    arenas, devices = [Arena(size), Arena(size)], [LateDevice(), LateDevice()]
    lines: list[Watched] = []
    for plain, device in zip(Line.pair("worker 0", "worker 1"), devices, strict=True):
        lines.append(Watched(plain.sock, plain.peer))
        lines[-1].device = device
    OPEN.extend(lines)
    return [SharedMemoryChannel(i, {1 - i: lines[i]}, arenas, devices[i]) for i in range(2)]


@pytest.mark.parametrize("size", [1 << 16, 1 << 12], ids=["through the arena", "inside the header"])
def test_what_is_copied_late_is_there_before_it_is_told(size: int) -> None:
    one, two = late_channels(size)
    one.send(1, Message("F", 3, 1, 2, 0, [(n, True) for n in range(len(SENT))]), SENT)
    ((_, got),) = list(two.receive())
    for mine, theirs in zip(SENT, got, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None and theirs is not None:
            assert torch.equal(mine, theirs) and mine.dtype == theirs.dtype and theirs.is_contiguous()
    list(one.receive())
    assert one.arenas[0].free == [(0, size)]


def test_a_place_is_used_again_only_when_it_has_been_read() -> None:
    """Many messages through an arena that holds two or three of them, in both directions."""
    channels = late_channels(1 << 12)
    got: list[list[float]] = [[], []]
    for n in range(40):
        for me, channel in enumerate(channels):
            channel.send(1 - me, Message("F", n, 0, 0, 0, [(0, True)]), [torch.full((200,), float(n + 100 * me))])
    while any(len(found) < 40 for found in got):
        for me, channel in enumerate(channels):
            for _, (tensor,) in channel.receive():
                assert tensor is not None and bool((tensor == tensor[0]).all())
                got[me].append(float(tensor[0]))
    assert got == [[float(n + 100) for n in range(40)], [float(n) for n in range(40)]]


def late(channel: Any) -> SharedMemoryChannel:
    """The channel of a worker, with copies that come late."""
    return SharedMemoryChannel(channel.rank, channel.lines, channel.arenas, LateDevice())


@pytest.mark.parametrize("placed", [{"workers": 2}, {"workers": 4, "split": True, "release": "layer"}], ids=["2", "4"])
def test_copies_that_come_late_change_no_bit(placed: dict[str, Any], tmp_path: Path) -> None:
    made = recipe(steps=8)
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    assert hashes(run(made, tmp_path / "late", parts=Parts(channel=late), **placed)) == plain
    assert not violations(tmp_path / "late")


PLACED: dict[str, dict[str, Any]] = {
    "two workers": {"workers": 2},
    "two, a GPU each": {"workers": 2, "transport": "host"},
    "replicas, chunks, split, by layer": {
        "workers": 4, "replicas": 2, "chunks": 2, "split": True, "release": "layer"
    },
}  # fmt: skip


@pytest.mark.parametrize("case", PLACED)
@pytest.mark.parametrize("budget", [0.0, 1.0], ids=["all stays", "a budget"])
@pytest.mark.parametrize("shared", ["strict", "delayed:3"])
def test_workers_of_one_device_give_the_bits_of_the_plain_loop(
    case: str, budget: float, shared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way of `--device cuda`, where the device is the host. Under `delayed:3` with replicas, a group's
    versions lie in three slots of each of its workers, and its one state wanders."""
    made = recipe(steps=8, micro_batches=4, shared=shared)
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    gpus = 2 if "each" in case else 1
    stand_in(monkeypatch, gpus)
    result = run(made, tmp_path / "run", device="cuda", budget=budget, **PLACED[case])
    assert hashes(result) == plain and not violations(tmp_path / "run")
    assert result["gpus"] == gpus
    placement = json.loads((tmp_path / "run" / "run.json").read_text())["placement"]
    assert placement["transport"] == PLACED[case].get("transport", "auto")


def test_workers_take_turns_at_gpus() -> None:
    assert [str(device_of(rank, 2)) for rank in range(4)] == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]


@pytest.mark.parametrize("device", ["cpu", "virtual"])
@pytest.mark.parametrize("transport", ["direct", "host"])
def test_a_transport_is_of_gpus(device: str, transport: str) -> None:
    with pytest.raises(RecipeError, match=f"--transport {transport} .* between GPUs, got --device {device}; use"):
        Placement(device=device, transport=transport)


def test_an_unknown_transport_is_refused() -> None:
    with pytest.raises(RecipeError, match="--transport must be auto, direct or host, got 'gloo'"):
        Placement(device="cuda", transport="gloo")


def test_a_gpu_that_takes_one_process_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(device: torch.device) -> None:
        raise RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable\nmore")

    monkeypatch.setattr(torch.cuda, "set_device", busy)
    share: Any = SimpleNamespace(placement=Placement(workers=2, device="cuda"), gpus=1)
    with pytest.raises(
        UserError, match=r"worker 1 cannot share GPU 0 .*unavailable\. .*EXCLUSIVE_PROCESS.*--workers 1"
    ):
        gpu._take(torch.device("cuda", 0), 1, share)  # pyright: ignore[reportPrivateUsage]
    share.gpus = 2
    with pytest.raises(RuntimeError, match="busy"):
        gpu._take(torch.device("cuda", 1), 1, share)  # pyright: ignore[reportPrivateUsage]


def test_what_is_said_of_shared_gpus() -> None:
    assert shared_gpus(4, 1) == "4 workers share 1 GPU, so times and bubbles say nothing about 4 GPUs"
    assert shared_gpus(4, 2).startswith("4 workers share 2 GPUs,")
    assert shared_gpus(2, 2) == shared_gpus(2, 0) == shared_gpus(1, 1) == ""


def test_how_many_gpus_there_are_is_no_part_of_the_fingerprint() -> None:
    assert different({"gpus": ["H200"]}, {"gpus": ["H200", "H200"]}) == []
    assert different({"gpus": ["H200"]}, {"gpus": ["H200", "L4"]}) == ["gpus: ['H200'] against ['H200', 'L4']"]
