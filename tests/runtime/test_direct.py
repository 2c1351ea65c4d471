"""Tensors between GPUs: what arrives, whose memory it is in, and the bits of runs that take them early."""

from __future__ import annotations

import itertools
import os
import random
import select
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sennit.errors import NanLossError, RunError, UserError
from sennit.memory.parcel import bundle
from sennit.memory.store import HostStore
from sennit.recipe import CheckpointRule
from sennit.runtime import gpu
from sennit.runtime.channel import Message
from sennit.runtime.control import Line, PeerGone
from sennit.runtime.direct import DirectChannel, Unreachable
from sennit.runtime.given import FIRST
from sennit.runtime.launcher import Crew
from sennit.runtime.load import load_run
from sennit.supernet.hashes import hash_tensors
from tests.runtime.host_gpu import stand_in
from tests.runtime.host_reach import HostReach
from tests.runtime.lines import OPEN
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_chimera import TIED
from tests.runtime.test_engines import violations
from tests.runtime.test_replicas import NORMLESS
from tests.runtime.test_transport import SENT
from tests.runtime.test_wire import windows_in


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """What calls give that wait for one another, or raise."""

    def one(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(one, calls))


def met(*reaches: HostReach) -> list[Any]:
    """Channels between workers of one process."""
    lines: list[dict[int, Line]] = [{} for _ in reaches]
    for a, b in itertools.combinations(range(len(reaches)), 2):
        lines[a][b], lines[b][a] = ends = Line.pair(f"worker {a}", f"worker {b}")
        OPEN.extend(ends)
    return at_once(*(lambda r=r: DirectChannel(r, lines[r], reaches[r]) for r in range(len(reaches))))


def told(message: Message, tensors: list[Tensor | None]) -> tuple[int, list[Tensor | None]]:
    return message.seq_id, tensors


def same(sent: list[Tensor | None], got: list[Tensor | None]) -> bool:
    return len(sent) == len(got) and all(
        (a is None and b is None)
        or (a is not None and b is not None and torch.equal(a, b) and a.dtype == b.dtype and b.is_contiguous())
        for a, b in zip(sent, got, strict=True)
    )


def of(n: int) -> Message:
    return Message("F", n, 0, 0, 0, [])


@pytest.mark.parametrize("early", [False, True])
def test_tensors_arrive_as_sent_with_explicit_nothing(early: bool) -> None:
    one, two = met(HostReach(), HostReach())
    one.send(1, of(3), SENT)
    one.send(1, of(4), [None])
    found: list[tuple[int, list[Tensor | None]]] = []
    assert [told(*got) for got in two.receive()] == [(4, [None])], "the first is still being copied"
    if not early:
        for copy in list(two.reach.under_way):
            two.reach.finish(copy)
        found += [told(*got) for got in two.receive()]
    elif (got := two.awaited()) is not None:
        assert got[0].awaited
        found.append(told(*got))
    ((seq_id, tensors),) = found
    assert seq_id == 3 and same(SENT, tensors) and not two.expecting()


def test_windows_of_one_piece_are_one_again() -> None:
    """What is added up as one piece is so at the receiver."""
    one, two = met(HostReach(), HostReach())
    pieces = [windows_in([(2, 3), (5,)], torch.float32), windows_in([(4,), (1, 7)], torch.float32)]
    one.send(1, of(0), [t for piece in pieces for t in piece])
    assert not list(two.receive())
    got = two.awaited()
    assert got is not None
    for piece, there in zip(pieces, (got[1][:2], got[1][2:]), strict=True):
        assert same(list(piece), there) and bundle([t for t in there if t is not None]) is not None


class Careful(HostReach):
    """Notices an event that is recorded again while somebody waits for its last time."""

    waiting: dict[int, int]
    """Copies, with the event that each waits for. Of both sides."""

    def __init__(self, waiting: dict[int, int]) -> None:
        super().__init__()
        self.waiting, self.lagging = waiting, random.Random(1)

    def write(self, into: Any, source: Any, event: Any) -> None:
        assert (id(self), event) not in self.waiting.values()
        super().write(into, source, event)

    def event(self) -> tuple[Any, Any]:
        number = next(self.numbers)
        return number, (id(self), number)

    def read(self, source: Tensor, after: Any) -> tuple[Tensor, Any]:
        into, copy = super().read(source, after)
        self.waiting[id(self), copy] = after  # type: ignore[index]
        return into, copy

    def done(self, copy: Any) -> bool:
        if self.lagging.random() < 0.3:
            self.finish(copy)
        return super().done(copy)

    def finish(self, copy: Any) -> None:
        super().finish(copy)
        self.waiting.pop((id(self), copy), None)  # type: ignore[call-overload]


def test_memory_and_events_are_used_again_only_when_they_have_been_read() -> None:
    """Thousands of messages of all sizes, to and fro, copied late, some taken early."""
    waiting: dict[int, int] = {}
    channels, draw = met(Careful(waiting), Careful(waiting), Careful(waiting)), random.Random(7)
    expected: dict[tuple[int, int], list[tuple[int, float, int]]] = {}
    got: dict[tuple[int, int], list[tuple[int, float, int]]] = {}

    def arrived(here: int, message: Message, tensors: list[Tensor | None]) -> None:
        (tensor,) = tensors
        assert tensor is not None and (tensor == tensor[0]).all()
        got.setdefault((message.source, here), []).append((message.seq_id, float(tensor[0]), tensor.numel()))

    for n in range(2000):
        a, b = draw.sample(range(3), 2)
        size = draw.choice((1, 100, 5000, 300_000))
        channels[a].send(b, Message("F", n, 0, 0, a, []), [torch.full((size,), float(n))])
        expected.setdefault((a, b), []).append((n, float(n), size))
        for here, channel in enumerate(channels):
            for received in channel.receive():
                arrived(here, *received)
            if draw.random() < 0.3 and (taken := channel.awaited()) is not None:
                arrived(here, *taken)
            if draw.random() < 0.2:
                channel.flush()
    for _ in range(100):
        for here, channel in enumerate(channels):
            for received in channel.receive():
                arrived(here, *received)
            channel.flush()
    assert {key: sorted(held) for key, held in got.items()} == expected
    for channel in channels:
        assert not channel.given.sent and len(channel.given.spare) == len(channel.given.events)
        assert all(block.places.free == [(0, block.places.size)] for block in channel.given.blocks)
        assert sum(block.places.size for block in channel.given.blocks) <= 4 * FIRST, "what comes back is used again"


class Full(HostReach):
    """Has room for one block."""

    blocks = 0

    def block(self, nbytes: int) -> tuple[Tensor, Any]:
        self.blocks += 1
        if self.blocks > 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
        return super().block(nbytes)


@pytest.mark.parametrize("full", [False, True], ids=["one block more", "in the header"])
def test_what_does_not_fit_arrives(full: bool) -> None:
    one, two = met(Full() if full else HostReach(), HostReach())
    big: list[Tensor | None] = [
        torch.randn(FIRST // 4 + 1),
        None,
        torch.arange(5),
        *windows_in([(3,), (4,)], torch.int64),
    ]
    one.send(1, of(0), big)
    one.send(1, of(1), [torch.ones(3)])
    found: dict[int, list[Tensor | None]] = {}
    while len(found) < 2:
        one.flush()
        found.update(told(*got) for got in two.receive())
        if (got := two.awaited()) is not None:
            found.update([told(*got)])
    assert same(big, found[0]) and same([torch.ones(3)], found[1])
    assert len(one.given.blocks) == (1 if full else 2)


class Closed(HostReach):
    def open(self, handle: Any) -> Tensor:
        raise RuntimeError("CUDA error: invalid resource handle\nmore")


class Empty(HostReach):
    def block(self, nbytes: int) -> tuple[Tensor, Any]:
        raise RuntimeError("no handles here")


@pytest.mark.parametrize(
    ("reach", "said"),
    [
        (Closed, "worker 1 cannot open that of worker 0: CUDA error: invalid resource handle"),
        (Empty, "worker 1 has none to give: no handles here"),
    ],
)
def test_all_workers_agree_that_one_cannot_be_reached(reach: type[HostReach], said: str) -> None:
    found = met(HostReach(), reach(), HostReach())
    assert all(isinstance(error, Unreachable) and str(error) == said for error in found), found


@pytest.mark.parametrize("transport", ["auto", "direct"])
def test_where_memory_cannot_be_reached_tensors_pass_through_the_host(
    transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recipe(steps=4)
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    stand_in(monkeypatch, 2)
    monkeypatch.setattr(gpu, "CudaReach", lambda device: Closed())
    placed = {"device": "cuda", "workers": 2, "transport": transport}
    if transport == "auto":
        assert hashes(run(made, tmp_path / "run", **placed)) == plain
    else:
        with pytest.raises(UserError, match=r"--transport direct .*: worker \d cannot open .* Leave it out"):
            run(made, tmp_path / "run", **placed)


def test_a_worker_stays_until_nobody_reads_its_memory() -> None:
    one, two = met(HostReach(), HostReach())
    one.send(1, of(0), [torch.ones(8)])
    two.send(0, of(1), [torch.ones(8)])
    assert not list(two.receive()) and two.expecting()
    with ThreadPoolExecutor(1) as pool:
        leaving = pool.submit(one.close)
        time.sleep(0.1)
        assert not leaving.done()
        two.close()
        assert not two.reach.under_way, "what was being copied has been"
        leaving.result(5)


def test_a_worker_that_ends_without_a_word_is_noticed() -> None:
    one, _ = met(HostReach(), HostReach())
    OPEN[-1].close()
    with pytest.raises(PeerGone):
        select.select([one.lines[1]], [], [], 1)
        one.close()


@pytest.mark.parametrize(
    ("how", "when"),
    [("killed", "before"), ("killed", "within"), ("killed", "after"), ("refuses", "before"), ("refuses", "after")],
)
def test_who_ends_while_workers_meet_is_the_one_that_is_named(
    how: str, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though others notice first, and the launcher sees to its lines much later."""
    stand_in(monkeypatch, 4)
    meet, open_, hear = DirectChannel._meet, DirectChannel._open, Crew.hear

    def end(self: DirectChannel) -> None:
        if self.rank == 1 and how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.rank == 1:
            raise UserError("no GPU for worker 1")

    def meets(self: DirectChannel) -> None:
        if when == "before":
            end(self)
        meet(self)
        if when == "after":
            end(self)

    def opens(self: DirectChannel, *handles: Any) -> None:
        open_(self, *handles)
        if when == "within" and self.rank == 1:
            end(self)

    def hears(self: Crew) -> None:
        time.sleep(0.3)
        hear(self)

    monkeypatch.setattr(DirectChannel, "_meet", meets)
    monkeypatch.setattr(DirectChannel, "_open", opens)
    monkeypatch.setattr(Crew, "hear", hears)
    with pytest.raises((RunError, UserError), match=r"worker 1($| was killed)"):
        run(recipe(steps=4), tmp_path / "run", device="cuda", workers=3)


def test_a_worker_that_parts_and_ends_at_once_has_not_ended_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = met(HostReach(), HostReach())
    real = DirectChannel._drop
    with ThreadPoolExecutor(1) as pool:
        leaving = pool.submit(one.close)

        def drop(self: DirectChannel, worker: int) -> None:
            if self is two:
                leaving.result(5)
                one.lines[1].close()  # its word and its end are heard together
            real(self, worker)

        monkeypatch.setattr(DirectChannel, "_drop", drop)
        two.close()


PLACED: dict[str, dict[str, Any]] = {
    "two": {"workers": 2},
    "three, chunks, by layer": {"workers": 3, "chunks": 2, "release": "layer"},
    "four, split": {"workers": 4, "split": True},
    "replicas": {"workers": 4, "replicas": 2},
}


@pytest.mark.parametrize("case", PLACED)
@pytest.mark.parametrize("changes", [{}, {"shared": "delayed:3"}, TIED], ids=["strict", "delayed", "tied"])
def test_workers_that_take_messages_early_give_the_bits_of_the_plain_loop(
    case: str, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is ever there before it is waited for, so everything is taken early."""
    made = recipe(**{"steps": 8, "micro_batches": 4, **changes})
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    stand_in(monkeypatch, 4)
    result = run(made, tmp_path / "run", device="cuda", **PLACED[case])
    assert hashes(result) == plain and not violations(tmp_path / "run")


def test_a_resumed_run_steps_what_waited_where_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker 0 stepped it, on its own device, and nobody else ever saw that version."""
    changes: dict[str, Any] = {**NORMLESS, "shared": "delayed:4"}
    plain = hashes(run(recipe(**changes), tmp_path / "plain", engine="plain"))
    stand_in(monkeypatch, 4)
    run(recipe(**changes), tmp_path / "run", steps=5, device="cuda", workers=2)
    assert hashes(run(recipe(**changes), tmp_path / "run", resume=True, device="cuda", workers=2)) == plain
    assert not violations(tmp_path / "run")


def test_a_worker_that_is_held_up_after_it_has_written_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others have written since is not taken for its own."""
    made = recipe(steps=4, micro_batches=4)
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    stand_in(monkeypatch, 4)
    real = HostStore.move

    def move(self: HostStore, group: str, word: tuple[int, int, int]) -> None:
        real(self, group, word)
        time.sleep(0.05)

    monkeypatch.setattr(HostStore, "move", move)
    assert hashes(run(made, tmp_path / "run", device="cuda", workers=3, replicas=3)) == plain


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_loss_that_is_not_finite_right_after_a_cut(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statistics are as they were at the cut: workers come to rest, and bring them, before they are taken back."""
    made = recipe(
        **{**TIED, "micro_batches": 2, "data": "tied.py:Spoilt", "data_args": {"spoilt": 0}},
        checkpoint=CheckpointRule(every=5),
    )
    stand_in(monkeypatch, 4)
    kept: list[tuple[str, str, str]] = []
    for name, placed in {"plain": {"engine": "plain"}, "two": {"workers": 2, "device": device}}.items():
        with pytest.raises(NanLossError, match="5 is nan in micro-batch 0; the state before"):
            run(made, tmp_path / name, **placed)  # type: ignore[arg-type]
        state = load_run(tmp_path / name).state
        kept.append((str(state.seq_id), hash_tensors(state.weights), hash_tensors(state.optimizer)))
    assert kept[0] == kept[1]
