"""From gradients to a step: a store that takes steps together, on memory of the host in place of a GPU's, against
clipping and steps written down one after the other."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from sennit.memory import cuda
from sennit.memory.cpu import CpuStore
from sennit.memory.cuda import CudaStore
from sennit.memory.gradients import Gradients
from sennit.memory.parcel import numbers, parcels, windows
from sennit.memory.store import HostStore
from sennit.runtime.board import Board
from sennit.runtime.share import Publishing
from sennit.runtime.stepping import Stepping
from sennit.supernet.bits import same_bits
from sennit.supernet.clip import Clip
from sennit.supernet.sync_rule import SyncRule
from sennit.trace.access import AccessLog
from tests.memory.late import LateDevice
from tests.memory.test_store import filled, store

LR = 0.1
GROUPS = {"a": ("a.bias", "a.weight"), "norm": ("norm.bias", "norm.weight")}
CLIPS = ["none", "layer:0.5", "global:0.5"]


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "pin", lambda memory, device: "not here")


def gradient(y: int, j: int, name: str, like: Tensor) -> Tensor:
    """Of subnet `y` and micro-batch `j`."""
    generator = torch.Generator().manual_seed(1000 * y + 10 * j + len(name))
    return torch.randn(like.shape, generator=generator)


def laid_out(host: HostStore, group: str, grads: dict[str, Tensor | None], together: bool) -> dict[Any, Tensor | None]:
    """As a run gives them: windows of one thing, or each by itself."""
    there = {name: grad for name, grad in grads.items() if grad is not None}
    if together and there:
        views = host.views[group][0]
        held = host.slots[group][0].views_of(torch.zeros(host.slots[group][0].nbytes, dtype=torch.uint8))
        (parcel,) = parcels([held[name] for name in there])
        made = windows(numbers(torch.zeros(parcel.nbytes, dtype=torch.uint8)), parcel.places)
        for i, window in zip(parcel.members, made, strict=True):
            name = list(there)[i]
            assert window.shape == views[name].shape
            there[name] = window.copy_(there[name])
    return {(name, -1): there.get(name) for name in grads}


def parts(
    kind: str, clip: str, optimizer: str = "adam", host: HostStore | None = None, halt: float = math.inf
) -> tuple[HostStore, CudaStore | CpuStore, Stepping]:
    """What one worker steps with."""
    host = filled(store(optimizer=optimizer)) if host is None else host
    made = (
        CudaStore(host, torch.device("cpu"), frozenset(), lambda pinned: LateDevice())
        if kind == "cuda"
        else CpuStore(host)
    )
    recipe = SimpleNamespace(clipping=Clip.parse(clip), micro_batches=2, lr_of=lambda y: LR, sync_rule=SyncRule("csp"))
    share = SimpleNamespace(
        recipe=recipe, host=host, built=SimpleNamespace(groups=host.groups), plans=None, bulk=1, start=0, probing=False,
        publishing=lambda group, version: nullcontext(), placement=SimpleNamespace(device=kind),
    )  # fmt: skip
    log = cast("AccessLog", SimpleNamespace(parameters=lambda *access: None))
    stepping = Stepping(
        0, cast("Any", share), made, log, lambda *told: None, lambda said: None, lambda subnet: None, lambda: halt
    )  # fmt: skip
    return host, made, stepping


def subnet_of(y: int, groups: Iterable[str] = GROUPS) -> Any:
    return SimpleNamespace(
        seq_id=y, users=dict.fromkeys(groups, 1), first_read={}, first_step={group: group for group in groups},
        unfinished=set(groups), trained_by=dict.fromkeys(groups, 0), norms=None,
    )  # fmt: skip


def trained(kind: str, clip: str, together: bool, without: dict[int, set[str]], optimizer: str = "adam") -> HostStore:
    """After four subnets of two micro-batches. `without`: of a subnet, the tensors without a gradient."""
    host, made, stepping = parts(kind, clip, optimizer)
    for y in range(4):
        subnet = subnet_of(y)
        for group in GROUPS:  # as its forward does
            made.acquire(group, y - 1)
        for j in range(2):
            for group, names in GROUPS.items():
                views = host.views[group][0]
                grads = {n: None if n in without.get(y, ()) else gradient(y, j, n, views[n]) for n in names}
                stepping.part(subnet, group, j, cast("Any", laid_out(host, group, grads, together)))
        stepping.look()
        assert not subnet.unfinished and not stepping.waits() and not stepping.complete
        assert {made.version(group) for group in GROUPS} == {y}
    if isinstance(made, CudaStore):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(synchronize=lambda: None))
            made.flush()
    return host


def state(host: HostStore) -> dict[str, Tensor]:
    return {**host.weights(), **host.optimizer_state()}


def by_hand(clip: str) -> dict[str, Tensor]:
    """The same subnets, one tensor after the other, with torch's own clipping factors and Adam for each group."""
    host = filled(store())
    flat = {group: _piece(host, group) for group in GROUPS}
    optimizers = {group: torch.optim.Adam([piece], lr=LR, foreach=False) for group, piece in flat.items()}
    rule = Clip.parse(clip)
    for y in range(4):
        grads = {
            name: gradient(y, 0, name, host.views[group][0][name]) + gradient(y, 1, name, host.views[group][0][name])
            for group, names in GROUPS.items() for name in names
        }  # fmt: skip
        for clipped in [[*GROUPS]] if rule.kind == "global" else [[group] for group in GROUPS]:
            norm = 0.0
            for name in sorted(name for group in clipped for name in GROUPS[group]):
                norm += float(torch.linalg.vector_norm(grads[name])) ** 2
            by = rule.limit / (norm**0.5 + 1e-6)
            for group in clipped:
                for name in GROUPS[group]:
                    grads[name].mul_(min(by, 1.0))
        for group, names in GROUPS.items():
            host_like = {name: grads[name] for name in names}
            ((_, whole),) = [(g, t) for g, t in _laid(host, group, host_like)]
            flat[group].grad = whole
            optimizers[group].step()
    return {group: piece.detach() for group, piece in flat.items()}


def _laid(host: HostStore, group: str, tensors: dict[str, Tensor]) -> list[tuple[str, Tensor]]:
    """Numbers as they lie in a group, zeros between them."""
    region = host.slots[group][0]
    memory = torch.zeros(region.nbytes, dtype=torch.uint8)
    for name, view in region.views_of(memory).items():
        view.copy_(tensors[name])
    first = min(place.offset for place in region.places.values())
    last = max(place.offset + place.nbytes for place in region.places.values())
    return [(group, memory[first:last].view(torch.float32))]


def _piece(host: HostStore, group: str) -> nn.Parameter:
    ((_, flat),) = _laid(host, group, host.views[group][0])
    return nn.Parameter(flat)


@pytest.mark.parametrize("clip", CLIPS)
def test_groups_in_one_piece_step_as_written_down_by_hand(clip: str) -> None:
    host, expected = trained("cuda", clip, True, {}), by_hand(clip)
    for group in GROUPS:
        assert same_bits(_piece(host, group).detach(), expected[group]), group
        assert {int(host.state_views[group][f"{name}.step"]) for name in GROUPS[group]} == {4}


SOME = [
    {},
    {1: {"norm.weight", "norm.bias"}},  # a group without any
    {0: {"a.bias"}, 2: {"norm.weight"}},  # tensors of a group that have stepped differently often
    {y: {"a.weight", "a.bias", "norm.weight", "norm.bias"} for y in range(3)},
]


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("without", SOME)
def test_steps_taken_together_or_tensor_by_tensor(clip: str, without: dict[int, set[str]], optimizer: str) -> None:
    plain = state(trained("cpu", clip, False, without, optimizer))
    loose = state(trained("cuda", clip, False, without, optimizer))
    assert plain.keys() == loose.keys() and same_bits(list(plain.values()), list(loose.values()))
    pieces = state(trained("cuda", clip, True, without, optimizer))
    assert plain.keys() == pieces.keys()
    for name, tensor in plain.items():  # on a CPU, where a number lies in a piece decides which instructions add it up
        torch.testing.assert_close(pieces[name], tensor, rtol=1e-6, atol=1e-7)
        assert not name.endswith(".step") or same_bits(pieces[name], tensor)


class Called(TorchDispatchMode):
    """What torch is called for; on a GPU each is at least a launch."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        if name != "aten._local_scalar_dense.default":  # a number of the host's is read
            self.names.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("clip", ["layer:0.5", "global:0.5"])
def test_launches_do_not_grow_with_the_groups_of_a_block(clip: str) -> None:
    counts: list[list[str]] = []
    for groups in (["a"], ["a", "norm"]):
        host, made, stepping = parts("cuda", clip)
        assert isinstance(made, CudaStore)
        made.due.optimizer.optimizer.param_groups[0]["foreach"] = True
        for y in range(2):
            subnet = subnet_of(y)
            grads: dict[str, Gradients] = {}
            for group in groups:
                views = made.acquire(group, y - 1)
                there = {n: gradient(y, 0, n, views[n]) for n in GROUPS[group]}
                laid = laid_out(host, group, cast("Any", there), together=True)
                grads[group] = Gradients({n: grad for (n, _), grad in laid.items() if grad is not None})
                assert grads[group].piece is not None
            stepping.complete[y] = {**grads}
            with Called() as called:
                if clip.startswith("layer"):
                    stepping.by_layer([(subnet, group, dict.fromkeys(GROUPS[group], 3.0)) for group in groups])
                else:
                    subnet.norms = sum(len(GROUPS[group]) for group in groups)
                    stepping.add_norms(subnet, {n: 3.0 for group in groups for n in GROUPS[group]})
        counts.append(called.names)
    assert counts[0] == counts[1] and len(counts[0]) < 15, counts


def test_what_fails_publishes_nothing(tmp_path: Path) -> None:
    board, told = Board(["a"]), list[Any]()
    share = cast(
        "Any",
        SimpleNamespace(
            board=board, bells=SimpleNamespace(ring=told.append),
            elsewhere=SimpleNamespace(published=lambda *said: told.append(said)),
        ),
    )  # fmt: skip
    with pytest.raises(ZeroDivisionError), Publishing(share, "a", 1, None):
        raise ZeroDivisionError
    assert told == [] and board.notes == 1, "who was about to make it was noted, but nobody is woken"
    with Publishing(share, "a", 1, None):
        assert board.made("a", 1) is not None and told == []
    with Publishing(share, "a", 2, (2, 0, 1)):
        pass
    assert told == ["a", ("a", 1), "a", ("a", (2, 0, 1))] and board.notes == 5


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("clip", CLIPS)
def test_nothing_steps_behind_a_halt(clip: str, kind: str) -> None:
    """Gradients that others have sent before they heard of it come when the cut before it has been reported."""
    host, made, stepping = parts(kind, clip, halt=1)
    for y in (0, 1):
        for group in GROUPS:
            made.acquire(group, 0 if made.version(group) == 0 else -1)
        for j in range(2):
            for group, names in GROUPS.items():
                views = host.views[group][0]
                grads: Any = {(n, -1): gradient(y, j, n, views[n]) for n in names}
                stepping.part(subnet_of(y), group, j, grads)
        stepping.look()
        assert {made.version(group) for group in GROUPS} == {0}
