"""Workers run an order from a file as they run ours."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from sennit.errors import RunError, UserError
from sennit.runtime import stall
from sennit.runtime.stopwatch import Stopwatch
from sennit.schedule.action import write_csv
from sennit.schedule.one_f_one_b import one_f_one_b
from tests.runtime.host_gpu import stand_in
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_engines import violations
from tests.runtime.test_sync_rules import CHAIN
from tests.schedule.test_own import MINE


def test_a_class_and_a_table_change_no_bit(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    made = recipe(sync="bulk:4", **{**CHAIN, "steps": 8})
    m = made.micro_batches
    (tmp_path / "order.csv").write_text(write_csv({w: one_f_one_b(w, 2, 4 * m) for w in range(2)}))
    plain = run(made, tmp_path / "plain", engine="plain")
    for name in ("mine.py:Ready", "order.csv"):
        result = run(made, tmp_path / f"run {name}", workers=2, schedule=str(tmp_path / name))
        assert hashes(result) == hashes(plain), name
        assert not violations(tmp_path / f"run {name}"), name


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Twice", r"gave 0F0.0, which is not ready"),
        ("Raises", r"the schedule: \S*mine.py:\d+ in pop raised ZeroDivisionError: integer division"),
    ],
)
def test_an_order_that_is_wrong_ends_the_run_and_says_why(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    with pytest.raises((UserError, RunError), match=said):
        run(recipe(**CHAIN), tmp_path / "run", workers=2, schedule=f"{tmp_path / 'mine.py'}:{name}")


WEIGHTS_FIRST = """
class Weights:
    def __init__(self, worker, setting): self.tasks, self.file = [], open(f"weights {worker}", "w")
    def add(self, task): self.tasks.append(task); print("ready", task, file=self.file, flush=True)
    def pop(self):
        if not self.tasks: return None
        first = max(self.tasks, key=lambda task: (task.kind == "W", -task.seq_id))
        self.tasks.remove(first)
        print("given", first, file=self.file, flush=True)
        return first
"""


def test_an_order_is_told_at_once_of_what_is_ready_on_a_gpu_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its device is busy or not: it may want gradients of weights first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(WEIGHTS_FIRST)
    made = recipe(**{**CHAIN, "steps": 8, "micro_batches": 2, "shared": "frozen", "space_args": {"depth": 2}})
    plain = run(made, tmp_path / "plain", engine="plain")
    stand_in(monkeypatch, 2)
    turns = count()
    monkeypatch.setattr(Stopwatch, "behind", lambda self: int(next(turns) % 9 > 0))
    result = run(made, tmp_path / "run", device="cuda", workers=2, split=True, schedule="mine.py:Weights", in_flight=6)
    assert hashes(result) == hashes(plain) and not violations(tmp_path / "run")
    for worker in range(2):
        given = [
            line.split()[1] for line in (tmp_path / f"weights {worker}").read_text().splitlines() if "given" in line
        ]
        halves = [i for i, task in enumerate(given) if "I" in task]
        assert len(halves) == 16 and all(given[i + 1] == given[i].replace("I", "W") for i in halves)


LAZY = """
class Lazy:
    def __init__(self, worker, setting): self.tasks = []
    def add(self, task): self.tasks.append(task)
    def pop(self):
        if self.tasks and self.tasks[0].seq_id < 2: return self.tasks.pop(0)
"""


def test_an_order_that_holds_back_what_is_ready_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Was told what its lowest subnet waits for, as if it could not go on."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stall, "STALL_S", 2.0)
    (tmp_path / "lazy.py").write_text(LAZY)
    made = recipe(**{**CHAIN, "steps": 4, "micro_batches": 1})
    with pytest.raises(
        RunError, match="worker 0 waits for its order, which gives none of the tasks that are ready: 0F2"
    ):
        run(made, tmp_path / "run", workers=2, schedule="lazy.py:Lazy")
