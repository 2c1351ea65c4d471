"""Ctrl-C and SIGTERM outside of training end a command: temporary folders are removed.

    asked ── a module is being imported, or a process forked? ──no──▶ KeyboardInterrupt
                        │ yes
                        ▼
                wait until that is over            asked once more: at once

An exception in the middle of an import is lost in some `except:` of torch's, aborts the process in its C++, or leaves
half a module behind, whose errors then look like the user's. What is raised in a callback of a fork is lost as well.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LOOK_S = 0.01
"""How often is looked whether that is over, seconds."""

_forking = 0


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Around a fork, in both processes."""
    global _forking
    _forking += 1
    try:
        yield
    finally:
        _forking -= 1


def loses_exceptions() -> bool:
    """Whether what is raised now may be lost."""
    return _forking > 0 or any(map(_comes, list(sys.modules.values())))


def _comes(module: Any) -> bool:
    """Whether a module is being imported."""
    try:
        spec = object.__getattribute__(module, "__spec__")  # a lazy one would import itself now
    except AttributeError:
        return False
    return getattr(spec, "_initializing", False)


class Interrupts:
    """Handler of both signals.

    Attributes:
        held: somebody has asked, and waits.
        again: this object asks in their place.
    """

    def __init__(self) -> None:
        self.held = self.again = False

    def listen(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self)

    def __call__(self, number: int, frame: Any) -> None:
        insisted, self.again = self.held and not self.again, False
        if not insisted and loses_exceptions():
            self.held = True
            threading.Thread(target=self._ask_again, args=(number,), daemon=True).start()
            return
        self.held = False
        raise KeyboardInterrupt

    def _ask_again(self, number: int) -> None:
        while loses_exceptions():
            time.sleep(LOOK_S)
        if self.held:
            self.again = True
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, number)
