"""Whoever sleeps until a word changes is woken by whoever writes it, and by nobody else."""

from __future__ import annotations

import os
import select
import threading
from pathlib import Path

import pytest

from sennit.runtime import worker
from sennit.runtime.bells import LOW, Bells
from sennit.runtime.launcher import Crew
from tests.runtime.runs import hashes, recipe, run

GROUPS = [f"g{i}" for i in range(70)]
"""More than there are bits: the first and the 63rd share one."""


@pytest.fixture
def bells() -> Bells:
    return Bells(3, GROUPS)


def rings(bells: Bells, rank: int) -> bool:
    return bool(select.select([bells.fileno_of(rank)], [], [], 0)[0])


def test_it_wakes_whoever_waits_for_that_name(bells: Bells) -> None:
    bells.put_up(0, {"g1", "g2"})
    bells.put_up(1, {"g2", LOW})
    bells.ring("g3")
    assert [rings(bells, rank) for rank in range(3)] == [False, False, False]
    bells.ring("g1")
    assert [rings(bells, rank) for rank in range(3)] == [True, False, False]
    bells.ring(LOW)
    assert [rings(bells, rank) for rank in range(3)] == [True, True, False]
    for rank in range(3):
        bells.take_down(rank)
        assert not rings(bells, rank)


def test_one_bit_for_several_groups_rings_too_often_and_never_too_seldom(bells: Bells) -> None:
    bells.put_up(0, {"g0"})
    bells.ring("g62")
    assert rings(bells, 0)


def test_a_worker_sleeps_only_if_it_has_looked_since(bells: Bells) -> None:
    assert not bells.put_up(0, {"g1"})
    assert bells.put_up(0, {"g1"})
    assert not bells.put_up(0, {"g1", "g2"}), "it waits for more than it had put up when it looked"
    bells.ring("g2")
    assert not bells.put_up(0, {"g1", "g2"}), "something was written since it looked"
    assert rings(bells, 0)


def test_many_rings_do_not_block(bells: Bells) -> None:
    """A pipe that nobody reads takes 64 KiB."""
    for _ in range(70_000):
        bells.put_up(2, {"g1"})
        bells.ring("g1")
    assert rings(bells, 2)
    bells.take_down(2)
    assert not rings(bells, 2)


def test_no_word_is_missed(bells: Bells) -> None:
    """A writer counts up as soon as it has been seen to; a sleeper that misses one ring would sleep for good."""
    word, seen = [0], [0]

    def write() -> None:
        for i in range(1, 2001):
            while seen[0] < i - 1:
                os.sched_yield()
            word[0] = i
            bells.ring("g5")

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    while seen[0] < 2000:
        seen[0] = word[0]
        if seen[0] < 2000 and bells.put_up(1, {"g5"}):
            assert select.select([bells.fileno_of(1)], [], [], 10)[0], f"no bell after {seen[0]}"
            bells.take_down(1)
    writer.join(10)


def test_closed_pipes_are_gone(bells: Bells) -> None:
    handle = bells.fileno_of(1)
    bells.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handle)


def all_gone(crew: Crew) -> None:
    """In place of killing workers that do not end when they are told to."""
    assert all(process.gone for process in crew.processes), "one slept when it was told to stop"
    for process in crew.processes:
        process.line.close()


@pytest.mark.parametrize(
    "changes",
    [{}, {"clip": "layer:0.5", "shared": "delayed:2"}, {"sync": "bulk:4"}],
    ids=["causal", "delayed", "bulk"],
)
def test_workers_sleep_until_they_are_woken(
    changes: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has to find out by looking again after a long nap."""
    made = recipe(steps=24, **changes)
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    monkeypatch.setattr(worker, "QUIET_S", 20.0)
    monkeypatch.setattr(worker.Quiet, "long", lambda self: pytest.fail("slept until the nap was over"))
    monkeypatch.setattr(Crew, "kill", all_gone)
    for workers in (2, 3):
        assert hashes(run(made, tmp_path / f"{workers}", workers=workers, in_flight=2)) == plain
