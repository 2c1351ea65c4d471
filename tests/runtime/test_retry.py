"""A device that is full: the task runs again, and nothing is left of the attempt that failed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sennit.errors import RunError
from sennit.runtime.retry import ATTEMPTS, Retry
from sennit.runtime.share import Parts
from tests.executor.host_graphs import HostGraphs
from tests.executor.test_graphs import KEEP
from tests.runtime.host_gpu import stand_in
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_budget import share_of
from tests.runtime.test_engines import CASES, violations
from tests.runtime.test_sync_rules import CHAIN


class Full:
    """An executor whose device is full the first time that a task is computed: after everything has been done, buffers
    written and graphs taken apart.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.tasks: dict[int, Any] = {}
        """Of each graph, by id, its task without the kind."""
        self.graphs: list[Any] = []
        self.failed: set[Any] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def full(self, task: Any) -> bool:
        return task not in self.failed

    def once(self, kind: str, key: Any, found: Any) -> Any:
        if self.full((kind, key)):
            self.failed.add((kind, key))
            raise torch.OutOfMemoryError("no room, says the test")
        return found

    def forward(self, program: Any, run: Any, slot: Any, arrivals: Any, inputs: Any, context: Any, *rest: Any) -> Any:
        found = self.inner.forward(program, run, slot, arrivals, inputs, context, *rest)
        key = run.index, context.key
        self.graphs.append(found[1])  # so that no other gets its id
        self.tasks[id(found[1])] = key
        return self.once("F", key, found)

    def backward(self, ctx: Any, grads: Any) -> Any:
        return self.once("B", self.tasks[id(ctx)], self.inner.backward(ctx, grads))

    def backward_input(self, ctx: Any, grads: Any) -> Any:
        return self.once("I", self.tasks[id(ctx)], self.inner.backward_input(ctx, grads))

    def backward_weight(self, ctx: Any) -> Any:
        return self.once("W", self.tasks[id(ctx)], self.inner.backward_weight(ctx))


@pytest.mark.parametrize("case", ["strict", "delayed", "bf16"])
@pytest.mark.parametrize(
    "placed", [{}, {"workers": 2, "split": True, "release": "layer"}], ids=["one worker", "two, split, by layer"]
)
def test_every_task_fails_once_and_no_bit_changes(case: str, placed: dict[str, Any], tmp_path: Path) -> None:
    made = recipe(**CASES[case])
    plain = run(made, tmp_path / "plain", engine="plain")
    result = run(made, tmp_path / "full", parts=Parts(executor=Full), **placed)
    assert hashes(result) == hashes(plain)
    assert not violations(tmp_path / "full")
    assert result["tasks_run_again"] >= 16 * 3 * 2, "forwards and backwards"


def test_replayed_layers_too(tmp_path: Path) -> None:
    made = recipe()
    plain = run(made, tmp_path / "plain", engine="plain")
    result = run(made, tmp_path / "full", parts=Parts(executor=Full, capturing=HostGraphs))
    assert hashes(result) == hashes(plain)
    assert result["tasks_run_again"] > 0


def test_replayed_layers_that_keep_what_they_made_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Seldom(Full):
        """Full now and then, with instances taken."""

        n = 0

        def full(self, task: Any) -> bool:
            self.n += 1
            return self.n % 19 == 0

    made = recipe(steps=24)
    plain = run(made, tmp_path / "plain", engine="plain")
    stand_in(monkeypatch)
    for i, kind in enumerate((Full, Seldom)):
        result = run(made, tmp_path / str(i), parts=Parts(executor=kind, capturing=HostGraphs), split=i > 0, **KEEP)
        assert hashes(result) == hashes(plain)
        assert result["tasks_run_again"] > 0
    assert result["graphs"]["kept_steps"] > 0, "what was kept has been let go, and kept again within less"


def test_a_w_that_runs_again_may_find_that_nothing_was_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Was lost: what the second I had computed, since the first had left it to W."""

    class Emptied(Full):
        """Full in the middle, when a W is to come; from then on nothing is kept."""

        n = 0

        def full(self, task: Any) -> bool:
            self.n += task[0] == "W"
            return task[0] == "W" and self.n == 30

        def relieve(self) -> None:
            self.inner.relieve()
            self.inner.instances.limit = 0

    made = recipe()
    plain = run(made, tmp_path / "plain", engine="plain")
    stand_in(monkeypatch)
    result = run(made, tmp_path / "full", parts=Parts(executor=Emptied, capturing=HostGraphs), split=True, **KEEP)
    assert hashes(result) == hashes(plain) and result["tasks_run_again"] == 1


def test_a_device_that_stays_full_ends_the_run_and_it_can_go_on(tmp_path: Path) -> None:
    made = recipe()
    plain = run(made, tmp_path / "plain", engine="plain")

    class Later(Full):
        """Has room for a while."""

        def full(self, task: Any) -> bool:
            return len(self.tasks) > 40

    often = replace(made, checkpoint=replace(made.checkpoint, every=4))
    with pytest.raises(RunError, match=r"(?s)the device of worker 0 is full at .*says the test.*--in-flight.*--resume"):
        run(often, tmp_path / "full", parts=Parts(executor=Later))
    assert hashes(run(often, tmp_path / "full", resume=True)) == hashes(plain)


def test_what_has_run_often_enough_is_not_run_again() -> None:
    calls: list[str] = []

    def call() -> None:
        calls.append("call")
        raise torch.OutOfMemoryError("full")

    retry = Retry(lambda: calls.append("room"), torch.device("cpu"))
    with pytest.raises(torch.OutOfMemoryError):
        retry(call, lambda: calls.append("undo"))
    assert calls == [*["call", "undo", "room"] * (ATTEMPTS - 1), "call"]


def test_slots_leave_a_full_device(tmp_path: Path) -> None:
    """Under a budget whatever is not pinned goes, and the same bits come."""
    made = recipe(**{**CHAIN, "steps": 12, "micro_batches": 3})
    plain = run(made, tmp_path / "plain", engine="plain")
    result = run(made, tmp_path / "full", parts=Parts(executor=Full), workers=2, budget=4 * share_of(made)[0])
    assert hashes(result) == hashes(plain)
    assert result["tasks_run_again"] > 0


def test_the_oldest_subnet_has_room_after_a_full_device(tmp_path: Path) -> None:
    """A device that is full while young subnets hold their layers: one more subnet must fit beside them."""

    class Late(Full):
        """Full once, in the middle."""

        n = 0

        def full(self, task: Any) -> bool:
            self.n += 1
            return self.n == 23

    made = recipe(**{**CHAIN, "steps": 16, "micro_batches": 3})
    plain = run(made, tmp_path / "plain", engine="plain")
    placed = {"workers": 2, "in_flight": 6, "release": "layer", "budget": 4 * share_of(made)[0]}
    result = run(made, tmp_path / "full", parts=Parts(executor=Late), **placed)
    assert hashes(result) == hashes(plain) and result["tasks_run_again"] == 2


def test_a_list_keeps_the_room_that_it_needs(tmp_path: Path) -> None:
    made = recipe(**{**CHAIN, "steps": 8, "micro_batches": 3, "sync": "bulk:4"})
    plain = run(made, tmp_path / "plain", engine="plain")
    placed = {"workers": 2, "schedule": "gpipe", "in_flight": 4, "budget": share_of(made)[1]}
    assert hashes(run(made, tmp_path / "full", parts=Parts(executor=Full), **placed)) == hashes(plain)


def test_a_backward_whose_weights_have_changed_is_not_run_again(tmp_path: Path) -> None:
    made = recipe(**CHAIN, sync="asp:none")
    with pytest.raises(RunError, match="is full"):
        run(made, tmp_path / "full", parts=Parts(executor=Full), workers=2)
