"""What a GPU worker sees to while its device computes: batches, programs and subnets to come. No bit depends on it."""

from __future__ import annotations

import mmap
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sennit.data.loader import BatchSource
from sennit.errors import RunError
from sennit.recipe import Placement
from sennit.runtime import stepping as stepping_of
from sennit.runtime import worker
from sennit.runtime.batches import Batches
from sennit.runtime.entry import Entry
from sennit.runtime.stepping import Stepping
from sennit.runtime.stopwatch import Stopwatch
from sennit.runtime.tasks import Tasks
from sennit.runtime.told import Told
from sennit.runtime.worker import Worker
from sennit.schedule.before_step import before_step
from tests.runtime.host_gpu import stand_in
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_engines import violations
from tests.runtime.test_sync_rules import CHAIN

IN_FLIGHT = 4
PLACED: dict[str, dict[str, Any]] = {
    "one": {"workers": 1},
    "chunks": {"workers": 2, "chunks": 2},
    "list": {"workers": 2, "schedule": "1f1b"},
}


@pytest.mark.parametrize("case", PLACED)
def test_no_forward_waits_for_a_batch_that_a_loader_has(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loader that is always in time, a device that is behind its host, subnets that follow one another: then all
    batches but the first come behind tasks, on every worker."""
    monkeypatch.setattr(Stopwatch, "behind", lambda self: worker.BACKLOG)
    made = recipe(steps=12)
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    stand_in(monkeypatch, 2)
    real, forward = BatchSource.there, Tasks.forward

    def there(self: BatchSource, seq_id: int) -> bool:
        while self.stream is not None and not real(self, seq_id):
            time.sleep(0.001)
        return real(self, seq_id)

    def checked(self: Tasks, subnet: Any, run: Any, j: int) -> None:
        if (run.reads_input or run.has_loss) and subnet.seq_id >= IN_FLIGHT:
            assert subnet.seq_id in self.batches.held, f"the forward of {subnet.seq_id} has to load its batch"
        forward(self, subnet, run, j)

    monkeypatch.setattr(BatchSource, "there", there)
    monkeypatch.setattr(Tasks, "forward", checked)
    result = run(made, tmp_path / "run", device="cuda", loaders=1, in_flight=IN_FLIGHT, **PLACED[case])
    assert hashes(result) == plain and not violations(tmp_path / "run")


@pytest.mark.parametrize("split", [False, True])
def test_nothing_is_prepared_while_a_device_waits_for_a_launch(
    split: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that is as far as its host: what is ready, or on its way, is launched before anything is prepared; so
    are gradients of weights that were put off."""
    made = recipe(steps=12, clip="layer:1.0")
    stand_in(monkeypatch, 2)
    prepare, prepared = Worker.prepare, mmap.mmap(-1, mmap.PAGESIZE)

    def checked(self: Worker, *, record: bool = True) -> bool:
        assert not self.offered and not self.stepping.waits() and not self.channel.expecting() and not self.put_off
        prepared[0] = 1
        return prepare(self, record=record)

    monkeypatch.setattr(Worker, "prepare", checked)
    run(made, tmp_path / "run", device="cuda", workers=2, chunks=2, loaders=1, split=split)
    assert prepared[0]


def test_an_idle_worker_of_a_gpu_sees_to_what_is_next_alone() -> None:
    def hurries(missing: int | None, low: int, *, launches: bool = True, beside: bool = True) -> bool:
        found = None if missing is None else SimpleNamespace(seq_id=missing)
        idle: Any = SimpleNamespace(
            launches=launches, coming=SimpleNamespace(programs=SimpleNamespace(wanted=beside)), subnets={},
            batches=SimpleNamespace(missing=lambda subnets: found), share=SimpleNamespace(low=np.array([low, low + 2])),
        )  # fmt: skip
        return Worker.hurries(idle)

    assert [hurries(missing, 4) for missing in (None, 4, 5, 6)] == [False, True, True, False]
    assert hurries(6, 4, launches=False) and hurries(6, 4, beside=False) and hurries(None, 4, beside=False)


def test_a_subnet_is_let_in_behind_a_task_and_not_before_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes a forward ready may also end the subnet before, so that another may come in: that can wait."""
    made = recipe(steps=12)
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    stand_in(monkeypatch, 2)
    last = ["launched"]

    def noting(cls: Any, name: str, what: str) -> None:
        real = getattr(cls, name)

        def noted(self: Any, *args: Any) -> Any:
            if what == "let in":
                assert last[0] in ("launched", "nothing", "let in"), f"let in behind {last[0]}"
            found = real(self, *args)
            if what != "nothing" or found is None:
                last[0] = what
            return found

        monkeypatch.setattr(cls, name, noted)

    noting(Worker, "hear", "heard")
    noting(Tasks, "execute", "launched")
    noting(Worker, "next_task", "nothing")
    noting(Entry, "take_in", "let in")
    result = run(made, tmp_path / "run", device="cuda", workers=2, chunks=2)
    assert hashes(result) == plain and not violations(tmp_path / "run")


@pytest.mark.parametrize("where", ["on the device", "by the host"])
def test_no_step_goes_before_a_backward_that_is_awaited(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients of a run may be complete while a backward of the same subnet is ready: it goes first."""
    made = recipe(steps=12, clip="layer:1.0", micro_batches=3)
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    stand_in(monkeypatch, 2)
    step, told, waited = Worker.step, Stepping.step, mmap.mmap(-1, mmap.PAGESIZE)
    if where == "by the host":
        monkeypatch.setattr(stepping_of, "computable", lambda grads: False)

    def by_itself(self: Stepping, subnet: Any, group: str, grads: Any) -> None:
        assert not any(task.kind in "BI" and task.seq_id <= subnet.seq_id for task in ready[-1])
        waited[1] = 1
        told(self, subnet, group, grads)

    ready: list[set[Any]] = [set()]

    def stepping(self: Worker, *, idle: bool = False) -> None:
        ready[-1] = self.offered
        step(self, idle=idle)

    def first(offered: Any, seq_id: int) -> bool:
        found = before_step(offered, seq_id)
        waited[0] |= found
        return found

    monkeypatch.setattr(Worker, "step", stepping)
    monkeypatch.setattr(Stepping, "step", by_itself)
    monkeypatch.setattr(worker, "before_step", first)
    result = run(made, tmp_path / "run", device="cuda", workers=1, release="layer")
    assert hashes(result) == plain and not violations(tmp_path / "run")
    assert waited[0] and waited[1], "no backward was ready when a step was due"


@pytest.mark.parametrize("sync", ["asp:none", "asp:stash"])
def test_asynchronous_workers_find_what_they_have_stepped(
    sync: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads that take whatever is there depend on no norm's way to the host, nor on which backward is ready."""
    made = recipe(**{**CHAIN, "sync": sync, "clip": "layer:0.1", "steps": 12, "micro_batches": 2})
    found = hashes(run(made, tmp_path / "cpu", workers=3))
    stand_in(monkeypatch, 3)
    for late in (1, 3, 20):
        looked: Counter[int] = Counter()

        def there(self: Told, late: int = late, looked: Counter[int] = looked) -> bool:
            looked[id(self)] += 1
            return looked[id(self)] > late

        monkeypatch.setattr(Told, "there", there)
        result = run(made, tmp_path / f"late {late}", device="cuda", workers=3)
        assert hashes(result) == found and not violations(tmp_path / f"late {late}")


# -- `prepare`


class Source:
    """Has some batches."""

    def __init__(self, has: set[int]) -> None:
        self.has = has

    def there(self, seq_id: int) -> bool:
        return seq_id in self.has

    def drop(self, seq_id: int) -> None:
        self.has.discard(seq_id)


def subnets(*wanting: bool) -> Iterator[Any]:
    """Subnets 0, 1, ..., and whether a run here wants a batch."""
    for y, wants in enumerate(wanting):
        yield SimpleNamespace(seq_id=y, own=[(SimpleNamespace(reads_input=wants, has_loss=False), 0)])


def batches(monkeypatch: pytest.MonkeyPatch, has: set[int], device: str = "cpu") -> Batches:
    made = Batches(SimpleNamespace(batches=None), Placement(device=device), None)  # type: ignore[arg-type]
    made.source = Source(has)  # type: ignore[assignment]
    monkeypatch.setattr(Batches, "of", lambda self, subnet: self.held.setdefault(subnet.seq_id, []))
    return made


def test_the_first_that_will_be_wanted_is_prepared_if_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    held = batches(monkeypatch, {0, 1, 2, 4})
    wanting = (True, False, True, True, True)
    assert held.prepare(subnets(*wanting)) and [*held.held] == [0]
    assert held.prepare(subnets(*wanting)) and [*held.held] == [0, 2]
    assert not held.prepare(subnets(*wanting)) and [*held.held] == [0, 2]  # 3 is not there, and comes before 4
    assert not held.prepare(subnets(False)) and not held.prepare([])
    virtual = batches(monkeypatch, {0}, "virtual")
    assert not virtual.prepare(subnets(True))  # nothing is computed there


def test_what_cannot_be_prepared_is_left_to_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    held = batches(monkeypatch, {0, 1})

    def refuse(self: Batches, subnet: Any) -> Any:
        if subnet.seq_id == 0:
            raise ValueError("such a shape does not fit")
        return self.held.setdefault(subnet.seq_id, [])

    monkeypatch.setattr(Batches, "of", refuse)
    assert held.prepare(subnets(True, True)) and not held.held
    assert held.prepare(subnets(True, True)) and [*held.held] == [1]
    with pytest.raises(ValueError, match="does not fit"):
        held.of(next(subnets(True)))
    held.drop(0)
    assert not held.left


@pytest.mark.parametrize(
    "error",
    [RunError("a process that loads data has died"), RuntimeError("DataLoader worker (pid 7) exited unexpectedly")],
)
def test_the_death_of_a_loader_is_told_at_once(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    held = batches(monkeypatch, {0})

    def die(self: Batches, subnet: Any) -> Any:
        raise error

    monkeypatch.setattr(Batches, "of", die)
    with pytest.raises(type(error)):
        held.prepare(subnets(True))
