"""Schedules from files: tables of actions, and classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from sennit.errors import UserError
from sennit.schedule.policy import MODULES, policy
from sennit.simulate.space_load import SpaceLoad
from sennit.simulate.space_run import SpaceRun
from sennit.simulate.spans import write_order
from sennit.trace.span import Span

M, WORKERS = 2, 2


def simulated(schedule: str, subnets: int, chunks: int = 1) -> tuple[float, list[Span]]:
    space = SpaceLoad(
        blocks=8, candidates=3, workers=WORKERS, micro_batches=M, subnets_wanted=subnets, chunks=chunks, release="stage"
    )
    spans: list[Span] = []
    return SpaceRun(space=space, schedule=schedule).simulate(spans.append).makespan, spans


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "zero-bubble", "zbv"])
def test_a_fixed_order_is_the_same_when_read_back(name: str, tmp_path: Path) -> None:
    """One round written, and then run for many rounds."""
    chunks = 2 if name == "interleaved" else 1
    write_order(tmp_path / "order.csv", simulated(name, WORKERS, chunks)[1], M)
    assert simulated(str(tmp_path / "order.csv"), 9) == simulated(name, 9, chunks)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("0F0,0B0\n0F1,0B1\n", r"stage 0 is on workers 0 and 1; give each stage to one"),
        ("0F0,0B0\n1F0\n", r"1B0 is there 0 times"),
        ("0F0,0F0,0B0\n1F0,1B0\n", r"0F0 is there 2 times"),
        ("0F0,0B0,0W0\n1F0,1B0\n", r"expected forwards with whole backwards \(F, B\) or with split ones"),
        ("0F0,0B0\n2F0,2B0\n", r"each of 3 stages must run F, B of micro-batches 0 to 0 once; 1F0 is there 0 times"),
        ("0F0,0B0,2F0,2B0\n1F0,1B0\n", r"3 stages on 2 workers; give each worker as many"),
        ("0F0,0X0\n", r"line 1: '0X0' is no action"),
        ("", r"it has nothing"),
        ("0F0,0B0,1F0,1B0\n,,\n", r"worker 1 has no actions"),
    ],
)
def test_a_table_that_leaves_work_out_is_refused(table: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "order.csv").write_text(table)
    with pytest.raises(UserError, match=said):
        policy(str(tmp_path / "order.csv"))


def test_a_table_for_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "order.csv").write_text("0F0,0B0\n1F0,1B0\n")
    with pytest.raises(UserError, match=r"for 2 workers and 1 micro-batches.*rounds of 2 subnets with 2 micro-batches"):
        simulated(str(tmp_path / "order.csv"), 4)
    with pytest.raises(UserError, match=r"No such file"):
        policy(str(tmp_path / "none.csv"))


def test_a_list_that_puts_a_task_before_what_it_waits_for_stands_still(tmp_path: Path) -> None:
    (tmp_path / "order.csv").write_text("0F0,0B0,0F1,0B1,0F2,0B2,0F3,0B3\n1F1,1B1,1F0,1B0,1F2,1B2,1F3,1B3\n")
    with pytest.raises(UserError, match=r"stands still: subnets \[0, 1\] are not done.*worker 1: 1F0.0"):
        simulated(str(tmp_path / "order.csv"), 4)


MINE = '''
from sennit.schedule.csp import CspOrder
from sennit.schedule.policy import Policy

class Ready:
    """Whatever came first."""
    def __init__(self, worker, setting): self.tasks = []
    def add(self, task): self.tasks.append(task)
    def pop(self): return self.tasks.pop(0) if self.tasks else None

class Never(Ready):
    def pop(self): return None

class Twice(Ready):
    def pop(self): return self.tasks[0] if self.tasks else None

class Raises(Ready):
    def pop(self): return 1 // 0

class NoPop:
    def __init__(self, worker, setting): ...
    def add(self, task): ...

class NoArgs(Ready):
    def __init__(self): self.tasks = []

class OneMore(Ready):
    def __init__(self, worker, setting, depth): self.tasks = []

class Default(Ready): pass

class Bare:
    def add(self, task): ...
    def pop(self): ...

class PopsSome(Ready):
    def pop(self, tasks): return tasks[0]

class AddsNone(Ready):
    def add(): ...

class Late(Ready):
    def __init__(self, worker, setting):
        super().__init__(worker, setting)
        self.pop = lambda tasks: None

def of_worker(worker): return Ready(worker, None)

of_none = Policy(order=lambda: Ready(0, None))
mine = Policy(order=lambda worker, setting: CspOrder(setting.awaited), sync="csp", in_flight=lambda setting: 3)
number = 3
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "mine.py"


def test_a_class_and_a_policy_run(file: Path) -> None:
    _, spans = simulated(f"{file}:Ready", 4)
    assert len(spans) == 4 * M * WORKERS * 2
    assert simulated(f"{file}:mine", 4)[1]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Never", r"stands still: subnets \[0, 1, 2, 3\] are not done.*worker 0: 0F0.0, 0F0.1"),
        ("Twice", r"the order of worker 0 gave 0F0.0, which is not ready, or has been given before"),
        ("NoPop", r"NoPop has no pop; an order has add\(task\)"),
        ("number", r"expected a sennit.schedule.policy.Policy, or a class.*got int"),
        ("Other", r"has no 'Other'; it defines Ready"),
    ],
)
def test_an_order_that_is_none_is_refused(name: str, said: str, file: Path) -> None:
    with pytest.raises(UserError, match=said):
        simulated(f"{file}:{name}", 4)


UNCALLABLE = [
    ("NoArgs", r"NoArgs \(.*mine.py:25\) is called with \(worker, setting\).*takes \(\): too many positional"),
    ("OneMore", r"OneMore \(.*mine.py:28\) is called with .*takes \(worker, setting, depth\): missing .*'depth'"),
    ("Bare", r"Bare is called with \(worker, setting\).*takes \(\)"),
    ("of_worker", r"of_worker \(.*mine.py:\d+\) is called with \(worker, setting\).*takes \(worker\)"),
    ("of_none", r"lambda> \(.*mine.py:\d+\) is called with \(worker, setting\).*takes \(\)"),
    ("PopsSome", r"PopsSome.pop \(.*mine.py:37\) is called as pop\(\), but takes \(self, tasks\): missing"),
    ("AddsNone", r"AddsNone.add \(.*\) is called as add\(task\), but takes \(\): too many"),
]


@pytest.mark.parametrize(("name", "said"), UNCALLABLE)
def test_an_order_that_cannot_be_called_is_refused_when_it_is_named(name: str, said: str, file: Path) -> None:
    with pytest.raises(UserError, match=said + r"(.|\n)*docs/own_schedule.md"):
        policy(f"{file}:{name}")


def test_methods_that_only_an_instance_has_are_looked_at_when_it_is_made(file: Path) -> None:
    with pytest.raises(UserError, match=r"is called as pop\(\), but takes \(tasks\)"):
        simulated(f"{file}:Late", 4)
    assert simulated(f"{file}:Default", 4)[1]


def test_no_name_of_ours_is_taken_for_a_file() -> None:
    assert all(":" not in name and not name.endswith(".csv") for name in MODULES)
