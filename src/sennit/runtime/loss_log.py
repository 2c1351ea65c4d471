"""`LossLog`: the losses of a run, a line a subnet."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from sennit.runtime.written import no_room


class LossLog:
    """`losses.jsonl`: one line `{"seq_id": 7, "arch": {...}, "loss": 0.25}` a subnet, in order.

    Losses are float32 values, written so that reading gives the same bits.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab")

    def write(self, seq_id: int, arch: Mapping[str, Any], loss: float, **more: Any) -> None:
        """Append a line. `more`: further keys, for instance scores of an evaluation."""
        self.note({"seq_id": seq_id, "arch": arch, "loss": loss, **more})

    def note(self, content: Mapping[str, Any]) -> None:
        """Append a line about something else than a subnet's loss, for instance an evaluation."""
        try:
            self._file.write(msgspec.json.encode(content) + b"\n")
            self._file.flush()
        except OSError as error:
            raise no_room(self.path, error) from error

    def sync(self) -> int:
        """Force all lines to disk, and return how many bytes they are: what a checkpoint remembers."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise no_room(self.path, error) from error
        return self._file.tell()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what a full disk kept from being written
            self._file.close()
