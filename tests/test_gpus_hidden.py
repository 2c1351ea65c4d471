"""No test can start CUDA in the process of the tests, so none decides whether workers of a later one can be forked."""

from __future__ import annotations

import ast
import fcntl
import os
import threading
from pathlib import Path

import pytest
import torch

from sennit.runtime.forked import in_child
from tests import gpus
from tests.gpus import apart, needs_gpu, needs_two_gpus, on_gpu, turn
from tests.runtime.runs import hashes, recipe, run

ASKS = {"is_available", "device_count"}


def seen() -> tuple[str | None, int]:
    return os.environ.get(gpus.VISIBLE), torch.cuda.device_count()


def test_this_process_sees_no_gpu_and_starts_nothing() -> None:
    assert seen() == ("", 0) and in_child(seen) == ("", 0)
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.sum().backward()
    torch.optim.Adam([parameter]).step()
    assert not torch.cuda.is_available() and not torch.cuda.is_initialized()
    names = [Path(task, "comm").read_text() for task in Path("/proc/self/task").iterdir()]
    assert not [name for name in names if name.startswith("pt_autograd")], "autograd's threads for GPUs"


def test_processes_apart_see_what_there_is() -> None:
    kept = os.environ[gpus.KEPT]
    assert apart(seen) == (None if kept == "all" else kept, gpus.gpu_count())
    assert seen() == ("", 0)


@pytest.mark.parametrize("kept", [None, "", "0", "1,0"])
def test_what_was_visible_comes_back(kept: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(gpus.KEPT)
    monkeypatch.delenv(gpus.VISIBLE)
    if kept is not None:
        monkeypatch.setenv(gpus.VISIBLE, kept)
    for _ in range(2):  # a second process of the tests inherits the environment of the first
        gpus.hide()
        assert os.environ[gpus.VISIBLE] == ""
    gpus.show()
    assert os.environ.get(gpus.VISIBLE) == kept


def fails() -> None:
    assert threading.active_count() == 0, "there is a thread"


def dies() -> None:
    os._exit(7)


def test_what_fails_apart_is_told() -> None:
    with pytest.raises(AssertionError, match="there is a thread") as raised:
        apart(fails)
    assert "in fails" in raised.value.__notes__[0]
    with pytest.raises(RuntimeError, match="ended with code 7"):
        apart(dies)


@on_gpu
@pytest.mark.parametrize("size", [1, 2])
def test_a_body_runs_in_another_process(size: int, tmp_path: Path) -> None:
    torch.ones(size, device="cuda", requires_grad=True).sum().backward()
    (tmp_path / "pid").write_text(f"{os.getpid()}")
    assert torch.cuda.is_initialized() and os.getppid() != os.getpid()


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_are_forked_after_a_backward_in_this_process(workers: int, tmp_path: Path) -> None:
    """On a machine with GPUs this fails if they can be seen here."""
    plain = run(recipe(steps=4), tmp_path / "plain", engine="plain")
    assert hashes(run(recipe(steps=4), tmp_path / "forked", workers=workers)) == hashes(plain)


def test_marks_say_how_many() -> None:
    assert [mark.mark.kwargs for mark in (needs_gpu, needs_two_gpus)] == [{"count": 1}, {"count": 2}]


def asking(path: Path) -> list[str]:
    """Where a file asks for GPUs in the process of the tests: as it is imported, or in a test's body."""
    tree = ast.parse(path.read_text())
    nodes: list[ast.AST] = []
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef):
            nodes.append(node)
        elif not node.name.startswith("test_"):
            nodes += [*node.decorator_list, node.args]
        elif not any(isinstance(d, ast.Name) and d.id == "on_gpu" for d in node.decorator_list):
            nodes.append(node)
    found = [n for node in nodes for n in ast.walk(node) if isinstance(n, ast.Attribute) and n.attr in ASKS]
    return [f"{path}:{n.lineno}: {ast.unparse(n)}" for n in found if "torch" in ast.unparse(n)]


def test_no_test_asks_here_whether_there_is_a_gpu() -> None:
    """The answer is always no: it would be skipped for ever. `needs_gpu`, `on_gpu` and `gpu_count` are for that."""
    folder = Path(__file__).parent
    files = [path for path in sorted(folder.rglob("*.py")) if path != Path(__file__)]
    assert len(files) > 100 and not [line for path in files for line in asking(path)]
    assert len(asking(Path(__file__))) == 1


def test_a_test_that_fills_the_gpu_has_it_alone(tmp_path: Path) -> None:
    def free(how: int) -> bool:
        with (tmp_path / "lock").open("w") as file:
            try:
                fcntl.flock(file, how | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    with turn(alone=False, lock=tmp_path / "lock"):
        assert free(fcntl.LOCK_SH) and not free(fcntl.LOCK_EX)
    with turn(alone=True, lock=tmp_path / "lock"):
        assert not free(fcntl.LOCK_SH)
    assert free(fcntl.LOCK_EX)
