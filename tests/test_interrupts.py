"""Ctrl-C and SIGTERM end a command whenever they come, and break nothing that is half done."""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sennit.interrupts import Interrupts, loses_exceptions, uninterrupted

BOTH = [signal.SIGINT, signal.SIGTERM]

SWALLOWS = """
import signal, time
whole = False
caught = None
try:
    for _ in range({times}):
        signal.raise_signal({number})
    time.sleep(0.05)
except BaseException as error:
    caught = error
whole = True
"""

FORKS = """
import os, signal, time
from sennit.interrupts import Interrupts
from sennit.runtime.forked import in_child
Interrupts().listen()
os.register_at_fork({when}=lambda: signal.raise_signal({number}))
try:
    assert in_child(lambda: 1) == 1  # not printed: what was held back may come in the middle of a line
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.fixture(autouse=True)
def listening() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in BOTH}
    Interrupts().listen()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def module(folder: Path, patch: pytest.MonkeyPatch, number: int, times: int = 1) -> str:
    name = f"swallows_{number}_{times}"
    (folder / f"{name}.py").write_text(SWALLOWS.format(number=int(number), times=times))
    patch.syspath_prepend(folder)
    return name


def outlast(seconds: float = 60.0) -> None:
    time.sleep(seconds)


@pytest.mark.parametrize("number", BOTH)
def test_an_import_is_finished_first(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Was lost in torch's, now and then; or torch was there by half, and the user's space was said to be wrong."""
    name = module(tmp_path, monkeypatch, number)
    with pytest.raises(KeyboardInterrupt):
        importlib.import_module(name)
        outlast()
    held: Any = sys.modules.pop(name)
    assert held.whole and held.caught is None


@pytest.mark.parametrize("number", BOTH)
def test_who_insists_is_heard_at_once(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module(tmp_path, monkeypatch, number, times=2)
    held: Any = importlib.import_module(name)
    sys.modules.pop(name)
    assert isinstance(held.caught, KeyboardInterrupt)


@pytest.mark.parametrize("number", BOTH)
def test_anywhere_else_it_ends_at_once(number: int) -> None:
    assert not loses_exceptions()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)


def test_a_fork_is_finished_first() -> None:
    done = False
    with pytest.raises(KeyboardInterrupt):
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done = True
        outlast()
    assert done and not loses_exceptions()


@pytest.mark.parametrize("number", BOTH)
@pytest.mark.parametrize("when", ["before", "after_in_parent"])
def test_what_comes_in_a_callback_of_a_fork_is_not_lost(number: int, when: str) -> None:
    code = FORKS.format(number=int(number), when=when)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines()[-1:] == ["interrupted"], ended.stderr
