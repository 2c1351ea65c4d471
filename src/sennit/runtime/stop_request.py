"""`StopRequest`: Ctrl-C and SIGTERM ask a run to stop at the next cut that can be had; a second one ends it at once."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any


class StopRequest:
    """Of one run.

    Args:
        on_asked: called when a signal asks for the first time.

    Attributes:
        asked: whether one has.
    """

    def __init__(self, on_asked: Callable[[], None]) -> None:
        self.asked = False
        self._on_asked = on_asked

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """Inside, signals ask.

        Raises:
            KeyboardInterrupt: at the second one.
        """

        def ask(number: int, frame: Any) -> None:
            if self.asked:
                raise KeyboardInterrupt
            self.asked = True
            self._on_asked()

        before: dict[int, Any] = {}
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.signal(number, ask)
        except ValueError:  # not the main thread: whoever runs us handles signals
            pass
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
