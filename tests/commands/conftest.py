"""A small run that the tests of commands work on, and a way to call a command in this process."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sennit.cli import main

HERE = Path(__file__).parent

RECIPE = """
space = "nets.py:Net"
data = "nets.py:Points"
batch_size = 12
micro_batches = 3
steps = 40
lr = 0.05
optimizer = {name = "sgd", momentum = 0.9}
checkpoint = {every = 15}
evaluate = {every = 20, samples = 48, random = 2}
"""


@dataclass
class Call:
    """What a command did."""

    exit: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        (line,) = self.out.splitlines()
        return json.loads(line)


class Caller:
    """Runs commands as `main` does."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self.capture = capture

    def __call__(self, *words: str | Path) -> Call:
        self.capture.readouterr()
        code = main([str(word) for word in words])
        shown = self.capture.readouterr()
        return Call(code, shown.out, shown.err)


@contextmanager
def handlers_kept() -> Iterator[None]:
    """A command has its own for Ctrl-C and SIGTERM."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Iterator[Caller]:
    with handlers_kept():
        yield Caller(capfd)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `r.toml` and the code it names; the current folder of the test."""
    shutil.copy(HERE / "nets.py", tmp_path)
    (tmp_path / "r.toml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    shutil.copy(HERE / "nets.py", folder)
    (folder / "r.toml").write_text(RECIPE)
    with handlers_kept():
        assert main(["train", str(folder / "r.toml"), "--out", str(folder / "run"), "--workers", "2"]) == 0
    return folder / "run"


@pytest.fixture
def run(trained_once: Path, workplace: Path) -> Path:
    """A trained run of its own for this test, at `run`."""
    shutil.copytree(trained_once, workplace / "run")
    return Path("run")
