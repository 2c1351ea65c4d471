"""Runs `sennit` as users do, in a process, and looks for whatever it leaves behind."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src"
MARK = "SENNIT_TEST_MARK"
LINES = 40
GRACE_S = 3.0
"""How long the machine may take to clean up after killed processes, seconds. They need milliseconds."""

RECIPE: dict[str, Any] = {
    "space": "hostile.py:Net", "data": "hostile.py:Points", "batch_size": 8, "micro_batches": 2, "steps": 60,
    "lr": 0.05, "checkpoint": {"every": 20},
}  # fmt: skip


def write_recipe(folder: Path, name: str = "r.toml", **changes: Any) -> Path:
    """A recipe file in `folder`, with the user code it names beside it."""
    shutil.copy(HERE / "commands" / "hostile.py", folder)
    path = folder / name
    path.write_text("".join(f"{key} = {_toml(value)}\n" for key, value in {**RECIPE, **changes}.items()))
    return path


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(v)}" for key, v in value.items()) + "}"
    return repr(value).lower() if isinstance(value, bool) else repr(value)


@dataclass
class Finished:
    """A command that has ended."""

    exit: int
    out: str
    err: str
    left: list[str]

    def refused(self, exit: int, *words: str) -> None:
        """Check that it ended as it should, said why in few words, and left nothing behind."""
        assert self.exit == exit, f"exit {self.exit}: {self.err}"
        for word in words:
            assert word in self.err, f"{word!r} is not in: {self.err}"
        assert "Traceback" not in self.err, self.err
        assert len(self.err.splitlines()) <= LINES, self.err
        assert not self.left, self.left


class Running:
    """A command that runs."""

    def __init__(self, folder: Path, *words: str, files_below: int | None = None, **env: str) -> None:
        self.mark = uuid.uuid4().hex
        self.shared = set(os.listdir("/dev/shm"))

        def limit() -> None:
            if files_below is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (files_below, files_below))

        self.process = subprocess.Popen(
            [sys.executable, "-m", "sennit", *words], cwd=folder, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, preexec_fn=limit,
            env={**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", MARK: self.mark, **env},
        )  # fmt: skip

    def wait(self, timeout: float = 90.0) -> Finished:
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            for pid in self.pids():
                os.kill(pid, signal.SIGKILL)
            raise
        return Finished(self.process.returncode, out, err, self._left())

    def until(self, condition: Callable[[], Any], timeout: float = 60.0) -> None:
        """Wait until something has happened in the run."""
        deadline = time.monotonic() + timeout
        while not condition():
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < deadline, "the run does not get there"
            time.sleep(0.01)

    def pids(self) -> list[int]:
        """All processes of this command, found by the mark in their environment."""
        wanted = f"{MARK}={self.mark}".encode()
        return [pid for pid in _numbers("/proc") if wanted in _read(f"/proc/{pid}/environ").split(b"\0")]

    def workers(self) -> list[int]:
        return [pid for pid in self.pids() if pid != self.process.pid]

    def _left(self) -> list[str]:
        deadline = time.monotonic() + GRACE_S
        left = set(self._now())  # what comes later is another program's
        while left and time.monotonic() < deadline:
            time.sleep(0.02)
            left &= set(self._now())
        return sorted(left)

    def _now(self) -> list[str]:
        processes = [f"process {pid}" for pid in self.pids()]
        new = set(os.listdir("/dev/shm")) - self.shared
        used = b"".join(_read(f"/proc/{pid}/maps") for pid in _numbers("/proc")) if new else b""
        # what another program on this machine uses at the moment is none of ours
        return processes + [f"/dev/shm/{name}" for name in sorted(new) if name.encode() not in used]


def sennit(folder: Path, *words: str, **options: Any) -> Finished:
    """Run a command to its end."""
    return Running(folder, *words, **options).wait()


def subnets(folder: Path) -> int:
    """How many losses a run has written."""
    path = folder / "losses.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def is_free(folder: Path) -> bool:
    """Whether a run folder can be locked."""
    with (folder / "lock").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _numbers(folder: str) -> list[int]:
    return [int(name) for name in os.listdir(folder) if name.isdecimal()]


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
