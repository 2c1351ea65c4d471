"""What is passed on stays where it is, until somebody reads it from the host."""

from __future__ import annotations

import mmap
import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from tests.memory.test_store import filled, store

from sennit.memory.asked import ASKED, Asked
from sennit.memory.cpu import CpuStore
from sennit.memory.device import HostDevice
from sennit.memory.eviction import LeastRecent
from sennit.memory.slots import SlotStore
from sennit.memory.stepped import Stepped
from sennit.memory.store import HostStore

ALL = frozenset(["a", "norm"])


def worker(host: HostStore, here: frozenset[str], passes: bool = True) -> SlotStore:
    made = SlotStore(
        CpuStore(host), HostDevice(), ALL, sum(host.coming_and_going.values()) + host.spare(), LeastRecent(),
        Stepped(here, ALL - here),
    )  # fmt: skip
    if passes:
        made.pass_on(lambda made: None, 0)
    return made


def step(mine: SlotStore, version: int, group: str = "a") -> None:
    mine.acquire(group, version - 1)
    leaves = mine.slots[group, 0].leaves
    mine.step(group, {name: torch.ones_like(leaf) for name, leaf in leaves.items()}, 0.1, version)


def test_who_looks_is_told_once_of_what_any_worker_asks_for() -> None:
    host = store()
    one, other, looks = Asked(host), Asked(host), Asked(host)
    assert looks.look() == []
    one.ask("a")
    assert looks.look() == ["a"] and "a" in looks and looks.look() == []
    other.ask("a")
    assert looks.look() == []
    other.ask("norm")
    one.ask("a")
    assert looks.look() == ["norm"] and Asked(host).look() == ["a", "norm"]


def test_whoever_looks_while_others_ask_is_told_of_each_once() -> None:
    """Numpy counts what is not zero, and then writes it down: bytes that others set in between ended the worker."""
    many = 1 << 15
    names = {f"g{i}": 0 for i in range(many)}
    shared: Any = SimpleNamespace(asked=np.frombuffer(mmap.mmap(-1, many), np.uint8), coming_and_going=names)
    looks, told = Asked(shared), list[str]()
    pid = os.fork()
    if not pid:
        asks = Asked(shared)
        for group in names:
            asks.ask(group)
        os._exit(0)
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        told += looks.look()
    told += looks.look()
    assert sorted(told) == sorted(names)


def test_nothing_goes_to_the_host_before_a_cut() -> None:
    host = filled(store())
    mine = worker(host, ALL)
    for version in range(3):
        step(mine, version)
        mine.poll()
        assert host.version("a") == -1 and not mine.expecting() and mine.holds("a", version)
    mine.flush()
    assert host.version("a") == 2 and torch.equal(host.current("a")["a.weight"], mine.slots["a", 0].leaves["a.weight"])
    assert host.has_stepped("a")


def test_what_is_not_passed_on_goes_there_at_once() -> None:
    host = filled(store())
    mine = worker(host, ALL, passes=False)
    step(mine, 0)
    mine.poll()
    assert host.version("a") == 0


def test_what_is_asked_for_goes_there_now_and_with_each_step() -> None:
    host = filled(store())
    mine, reader = worker(host, ALL), worker(host, frozenset())
    rung: list[str] = []
    reader.announce(rung.append)
    step(mine, 0)
    mine.poll()
    reader.passed.give_up("a", 0)
    assert rung == [ASKED] and not reader.holds("a", 0)
    mine.poll()
    mine.poll()
    assert host.version("a") == 0 and reader.holds("a", 0)
    step(mine, 1)
    step(mine, 0, "norm")
    mine.poll()
    assert host.version("a") == 1 and host.version("norm") == -1, "nobody asked for that one"


def test_a_step_that_is_still_due_is_written_back_when_it_has_been_taken() -> None:
    host = filled(store())
    mine = worker(host, ALL)
    before = host.current("a")["a.weight"].clone()
    with mine.together():
        step(mine, 0)
        mine.passed.asked.ask("a")
        mine.poll()
        mine.poll()
        assert host.version("a") == -1 and torch.equal(host.current("a")["a.weight"], before)
    mine.poll()
    assert host.version("a") == 0
    assert torch.equal(host.current("a")["a.weight"], mine.slots["a", 0].leaves["a.weight"])


def test_a_slot_that_is_given_up_here_is_written_back_with_its_state() -> None:
    host = filled(store())
    mine = worker(host, ALL)
    mine.expect(["a"])
    step(mine, 0)
    mine.relieve()
    mine.poll()
    assert host.version("a") == 0 and host.has_stepped("a")
    step(mine, 1)
    mine.flush()
    assert host.version("a") == 1
