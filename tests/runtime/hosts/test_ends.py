"""However a run of several hosts ends, it ends everywhere, with one message."""

from __future__ import annotations

import os
import secrets
import signal
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sennit.errors import RunError, UserError
from sennit.runtime import pipeline
from sennit.runtime.control import Line
from sennit.runtime.hosts import guest
from sennit.runtime.hosts.guest import follow
from sennit.runtime.hosts.meeting import Meeting, part
from sennit.runtime.hosts.wire import KEY_BYTES, WORKER, Hello, accept, connect, hear, listen, tell
from sennit.runtime.request import Progress, Request
from sennit.runtime.train import train
from tests.runtime.hosts.several import codes, guests, request_of, run_on
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_chimera import TIED
from tests.runtime.test_sync_rules import CHAIN

LONG = 400


def children(pid: int) -> list[int]:
    """Processes that `pid` has started."""
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    """Whether a process runs; a child of nobody here is none of ours to bury."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] not in "ZX"
    except OSError:
        return False


def ended(pids: list[int], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while any(map(alive, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_who_still_speaks_at_the_end_hears_how_it_ended() -> None:
    """Another launcher tells of its workers' ends whenever it sees them, before and after host 0 has read its last."""
    listener, key = listen(), secrets.token_bytes(KEY_BYTES)
    address = ("127.0.0.1", listener.getsockname()[1])
    with ThreadPoolExecutor(2) as threads:
        joining = threads.submit(Meeting.join, 1, 2, address, key)
        first = Meeting.await_others(2, listener, key, 30.0)
        other = joining.result(30)
        line = other.lines[0]
        tell(line, ("died", 1, "ended"))  # lies there unread
        time.sleep(0.1)
        leaving = threads.submit(first.__exit__, None, None, None)
        time.sleep(0.2)
        for _ in range(3):
            tell(line, ("died", 2, "ended"))
            time.sleep(0.05)
        assert not leaving.done() and hear(line) == ("end", None)
        other.__exit__(None, None, None)
        leaving.result(1)


def test_hosts_that_say_nothing_are_waited_for_a_little() -> None:
    one, other = Line.pair("here", "there")
    began = time.monotonic()
    part([one], 0.2)
    part([one], 0.2)  # closed already
    assert 0.1 < time.monotonic() - began < 2 and one.sock.fileno() == -1
    other.close()


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where other launchers keep what has a name."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def killed(victim: Callable[[list[int]], int], tmp_path: Path) -> tuple[str, str]:
    """Kill a process after some subnets; `victim` is told the other launcher and its workers. Returns what both say."""
    request = request_of(recipe(steps=LONG), tmp_path / "run", workers=4)
    there: list[int] = []
    with guests(request, 2, tmp_path / "run.guests") as (meeting, pids):

        def tell(progress: Progress) -> None:
            if progress.event == "subnet" and progress.done == 5:
                there.extend([pids[0], *children(pids[0])])
                os.kill(victim(there), signal.SIGKILL)

        meeting.brief(request)
        with pytest.raises(RunError) as caught:
            try:
                train(replace(request, meeting=meeting), tell)
            except RunError as error:
                meeting.__exit__(RunError, error, None)
                raise
    assert len(there) == 3 and ended(there)
    assert not children(os.getpid()) and not list((tmp_path / "temporary").glob("sennit-*"))
    said = tmp_path / "run.guests" / "1"
    return str(caught.value), said.read_text() if said.exists() else ""


def test_a_worker_of_another_host_is_killed(tmp_path: Path) -> None:
    here, there = killed(lambda pids: pids[2], tmp_path)
    assert "worker 3 on host 1 was killed by signal SIGKILL; all workers were stopped" in here
    assert there == f"RunError: {here}"
    assert codes(tmp_path / "run") == "[3]"


def test_a_worker_of_host_0_is_killed(tmp_path: Path) -> None:
    here, there = killed(lambda pids: children(os.getpid())[1], tmp_path)
    assert "on host 0 was killed by signal SIGKILL; all workers were stopped" in here
    assert there == f"RunError: {here}"


def test_another_launcher_is_killed(tmp_path: Path) -> None:
    here, _ = killed(lambda pids: pids[0], tmp_path)
    assert "host 1 has ended, or does not answer" in here or "on host 1 has ended: its host has, too" in here
    assert codes(tmp_path / "run") == "[-9]"


def test_host_0_is_killed(tmp_path: Path) -> None:
    """And what is kept can be gone on with."""
    made, out, reading = recipe(steps=24), tmp_path / "run", tmp_path / "told"
    request = request_of(made, out, workers=2)
    pid = os.fork()
    if not pid:
        try:
            with guests(request, 2, tmp_path / "run.guests") as (meeting, pids):

                def tell(progress: Progress) -> None:
                    if progress.event == "subnet" and progress.done == 5:
                        reading.write_text(" ".join(map(str, [*pids, *children(pids[0]), *children(os.getpid())])))
                        os.kill(os.getpid(), signal.SIGKILL)

                meeting.brief(request)
                train(replace(request, meeting=meeting), tell)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9
    assert ended([int(n) for n in reading.read_text().split()])
    said = (tmp_path / "run.guests" / "1").read_text()
    assert said == "RunError: host 0 has ended, or does not answer; all workers were stopped"
    again = run_on(2, made, out, resume=True, workers=2)
    assert hashes(again) == hashes(run(made, tmp_path / "plain", engine="plain"))


def test_code_that_raises_on_another_host(tmp_path: Path) -> None:
    changes = {**TIED, "data": "tied.py:Spoilt", "data_args": {"spoilt": 0}, "loss_name": "hosts/picky.py:loss"}
    with pytest.raises(
        RunError, match=r"worker 1 on host 1 failed in the forward of subnet 5, .* cannot go on"
    ) as here:
        run_on(2, recipe(**changes), tmp_path / "run", workers=2)
    there = (tmp_path / "run.guests" / "1").read_text()
    assert there == f"RunError: {here.value}" and "picky.py" in there


def other(**changes: Any) -> Callable[[Request, Meeting], None]:
    """A launcher with another recipe."""
    return lambda request, meeting: follow(replace(request, recipe=recipe(**changes)), meeting)


def elsewhere(request: Request, meeting: Meeting) -> None:
    """A launcher whose code is not host 0's."""
    request.recipe.built.sources["space"] = "another"
    follow(request, meeting)


@pytest.mark.parametrize(
    ("guest", "says"),
    [(other(lr=0.02), "its recipe is not host 0's"), (elsewhere, "host 1 has other code: space")],
)
def test_hosts_that_do_not_agree(guest: Callable[[Request, Meeting], None], says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says):
        run_on(2, recipe(), tmp_path / "run", guest=guest, workers=2)
    assert not (tmp_path / "run").exists()
    assert codes(tmp_path / "run") == "[3]"


@pytest.mark.parametrize(
    ("changes", "placement", "says"),
    [
        ({}, {"workers": 1}, "each of 2 needs one; use at least --workers 2"),
        ({}, {"workers": 2, "device": "virtual"}, "--device virtual does not run yet"),
        ({**CHAIN, "sync": "asp:stash"}, {"workers": 2}, "sync = 'asp:stash' does not run on 2 hosts yet"),
    ],
)
def test_what_does_not_run_on_several_hosts(
    changes: dict[str, Any], placement: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=says):
        run_on(2, recipe(**changes), tmp_path / "run", **placement)
    assert "UserError" in (tmp_path / "run.guests" / "1").read_text()


def test_other_weights_to_begin_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def guest(request: Request, meeting: Meeting) -> None:
        made = pipeline.initialise

        def spoilt(space: Any, seed: int, *others: Any) -> None:
            made(space, seed + 1, *others)

        monkeypatch.setattr(pipeline, "initialise", spoilt)  # in a process of its own
        follow(request, meeting)

    with pytest.raises(UserError, match="host 1 initialises other weights than host 0"):
        run_on(2, recipe(), tmp_path / "run", guest=guest, workers=2)


def test_nothing_is_read_from_strangers() -> None:
    listener, key = listen(), b"k" * KEY_BYTES
    address = ("127.0.0.1", listener.getsockname()[1])
    stranger = connect(address, b"x" * KEY_BYTES, Hello(WORKER, 1, 0, 0))
    friend = connect(address, key, Hello(WORKER, 2, 0, 0))
    came = accept(listener, key, 5.0)
    assert came is not None and came[1].source == 2
    assert stranger.recv(1) == b""
    for sock in (stranger, friend, came[0], listener):
        sock.close()


def test_a_host_that_ends_before_its_workers_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(request: Request, meeting: Meeting) -> None:
        monkeypatch.setattr(guest, "mesh", lambda *given: os._exit(5))  # in a process of its own
        follow(request, meeting)

    with pytest.raises(RunError, match="host 1 has ended, or does not answer"):
        run_on(2, recipe(), tmp_path / "run", guest=gone, workers=2)
    assert codes(tmp_path / "run") == "[5]"
