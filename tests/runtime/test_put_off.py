"""Gradients of weights that are not launched before what may still come.

may come    nothing    something    something
device         *         idle         busy
launched      all        one          none
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from itertools import count, permutations
from pathlib import Path
from typing import Any

import pytest

from sennit.runtime.put_off import PutOff
from sennit.runtime.stopwatch import Stopwatch
from sennit.runtime.tasks import Tasks
from sennit.runtime.worker import Worker
from sennit.schedule.order import Task
from sennit.schedule.ready import Ready
from tests.runtime.host_gpu import stand_in
from tests.runtime.host_reach import HostReach
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_engines import violations
from tests.runtime.test_sync_rules import CHAIN

W = [Task("W", 0, j, 0) for j in range(3)]
GRADIENT, VALUE, VERSION, WORD = (
    ("grad", 0, 1, 0, 7, 1),
    ("value", 1, 0, 0, 3),
    ("version", "g", 1, 0),
    ("word", "g", 0),
)


def put_off(
    *waiting: tuple[Task, list[Any]], behind: int, awaited: Callable[[int, int], bool] = lambda seq_id, run: False
) -> PutOff:
    ready = Ready()
    for task, events in waiting:
        ready.add(task, events)
    found = PutOff(ready, lambda: behind, awaited)
    for task in W:
        found.add(task)
    return found


@pytest.mark.parametrize("behind", [0, 1, 5])
@pytest.mark.parametrize(
    "waiting",
    [
        [], [(Task("F", 1, 0, 0), [VERSION])], [(Task("F", 1, 0, 0), [VERSION, VALUE]), (Task("F", 1, 1, 0), [WORD])],
        [(Task("W", 0, 3, 0), [GRADIENT])],
    ],
    ids=["nothing", "a version", "versions and more", "others of them"],
)  # fmt: skip
def test_all_are_due_when_nothing_can_come_before_them(waiting: Any, behind: int) -> None:
    held = put_off(*waiting, behind=behind)
    assert held and held.due() == W and not held and held.due() == []


@pytest.mark.parametrize("event", [GRADIENT, VALUE])
@pytest.mark.parametrize("kind", ["F", "B", "I"])
def test_while_something_may_come_one_is_due_whenever_the_device_has_ended(kind: Any, event: Any) -> None:
    waiting = (Task(kind, 0, 1, 0), [event]), (Task("F", 1, 0, 0), [VERSION])
    assert put_off(*waiting, behind=1).due() == []
    held = put_off(*waiting, behind=0)
    assert [held.due() for _ in range(4)] == [[W[0]], [W[1]], [W[2]], []]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_earliest_subnet_goes_first_whichever_was_ready_first(order: tuple[int, ...]) -> None:
    ready = Ready()
    ready.add(Task("F", 9, 0, 0), [VALUE])
    held = PutOff(ready, lambda: 0, lambda seq_id, run: False)
    for y in order:
        held.add(Task("W", y, 2 - y, y))
    assert [task.seq_id for _ in range(3) for task in held.due()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("waiting", "offered", "urgent"),
    [
        ([], [], True),
        (
            [(Task("F", 1, 0, 0), [VALUE]), (Task("F", 2, 0, 0), [VERSION])],
            [Task("F", 1, 0, 1), Task("W", 0, 3, 0)],
            True,
        ),
        ([(Task("F", 0, 3, 0), [VERSION])], [], True),
        ([(Task("I", 0, 3, 0), [GRADIENT])], [], False),
        ([(Task("F", 0, 3, 0), [VALUE])], [], False),
        ([], [Task("F", 0, 3, 0)], False),
        ([], [Task("I", 0, 3, 0)], False),
    ],
)
def test_those_whose_version_is_awaited_go_before_later_subnets(waiting: Any, offered: Any, urgent: bool) -> None:
    assert put_off(*waiting, behind=1).urgent(offered) == []
    held = put_off(*waiting, behind=1, awaited=lambda seq_id, run: (seq_id, run) == (0, 0))
    held.add(other := Task("W", 0, 0, 1))
    assert held.urgent(offered) == (W if urgent else [])
    assert held.tasks == ([other] if urgent else [*W, other])


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one": ({}, {"workers": 1}),
    "two": ({"micro_batches": 2}, {"workers": 2}),
    "chunks": ({"micro_batches": 3}, {"workers": 2, "chunks": 2}),
    "layers": ({"micro_batches": 2}, {"workers": 3, "release": "layer"}),
    "delayed": ({"micro_batches": 2, "shared": "delayed:3"}, {"workers": 2, "in_flight": 4}),
    "naspipe": ({"micro_batches": 2}, {"workers": 2, "schedule": "naspipe"}),
    "budget": ({"micro_batches": 2}, {"workers": 2, "budget": 1.0}),
    "a list": ({"micro_batches": 4, "batch_size": 8}, {"workers": 2, "schedule": "zero-bubble"}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_busy_device_changes_no_bit(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes, placed = CASES[case]
    made = recipe(**{**CHAIN, "steps": 12, "micro_batches": 2, **changes})
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    stand_in(monkeypatch, placed["workers"])
    seen, turns, given = mmap.mmap(-1, mmap.PAGESIZE), count(), Worker.give

    def busy(self: Stopwatch) -> int:
        seen[0] = 1
        return int(next(turns) % 7 > 0)

    def noted(self: Worker, ready: Task) -> None:
        seen[1] |= ready.kind == "W"
        given(self, ready)

    monkeypatch.setattr(Stopwatch, "behind", busy)
    monkeypatch.setattr(Worker, "give", noted)
    split = placed.get("schedule") != "zero-bubble"
    result = run(made, tmp_path / "run", device="cuda", split=split, **placed)
    assert hashes(result) == plain and not violations(tmp_path / "run")
    assert seen[0] and seen[1]


def test_what_comes_meanwhile_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices that are busy until all forwards and I of a subnet have been launched: its W are behind them."""
    made = recipe(**{**CHAIN, "steps": 8, "micro_batches": 2})
    stand_in(monkeypatch, 2)
    launched: dict[int, str] = {}
    execute, due = Tasks.execute, PutOff.due

    def noted(self: Tasks, task: Task, subnet: Any) -> None:
        launched[task.seq_id] = launched.get(task.seq_id, "") + task.kind
        with (tmp_path / f"{self.stepping.rank}").open("a") as file:
            file.write(f"{task.kind}{task.seq_id} ")
        execute(self, task, subnet)

    def until(self: PutOff) -> list[Task]:
        self.behind = lambda: int(any(len(launched[task.seq_id]) < 4 for task in self.tasks))
        return due(self)

    monkeypatch.setattr(Tasks, "execute", noted)

    def there(self: HostReach, copy: Any) -> bool:
        self.finish(copy)
        return True

    monkeypatch.setattr(PutOff, "due", until)
    monkeypatch.setattr(HostReach, "done", there)  # nobody waits for them
    run(made, tmp_path / "run", device="cuda", workers=2, split=True)
    for rank in range(2):
        order = (tmp_path / f"{rank}").read_text().split()
        for y in range(8):
            assert sorted(mine := [task[0] for task in order if task[1:] == f"{y}"]) == list("FFIIWW")
            assert mine[4:] == ["W", "W"]


@pytest.mark.parametrize("shared", ["strict", "delayed:4"])
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_no_later_forward_goes_before_what_a_version_waits_for(
    micro_batches: int, shared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Causal order puts it first, if it has it: it went behind forwards of all subnets in flight."""
    made = recipe(**{**CHAIN, "steps": 12, "micro_batches": micro_batches, "shared": shared})
    stand_in(monkeypatch, 2)
    forwards, turns, real = mmap.mmap(-1, mmap.PAGESIZE), count(), Worker.next_task

    def checked(self: Worker) -> Task | None:
        task = real(self)
        if task is not None and task.kind == "F" and self.put_off is not None:
            forwards[0] = 1
            others = [t.seq_id for t in (*self.ready.missing, *self.offered) if t.kind != "W"]
            for late in self.put_off.tasks:
                if late.seq_id < task.seq_id and self.awaited(late.seq_id, late.run):
                    assert any(y <= late.seq_id for y in others), f"{task} goes before {late}"
        return task

    monkeypatch.setattr(Stopwatch, "behind", lambda self: int(next(turns) % 5 > 0))
    monkeypatch.setattr(Worker, "next_task", checked)
    run(made, tmp_path / "run", device="cuda", workers=2, split=True, release="layer", in_flight=6)
    assert forwards[0]
