"""`Appending`: whole lines, from several processes, at the end of one file."""

from __future__ import annotations

import os
from pathlib import Path

from sennit.errors import RunError


class Appending:
    """Appends the lines of one process to a file that others append to as well. A flush is one write.

    Args:
        path: the file; made if it is not there.
        what: what it is, for messages.
    """

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        self._what = what
        self._lines: list[str] = []
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def flush(self) -> None:
        """Append what is held to the file.

        Raises:
            RunError: the disk is full, or the file cannot be written to.
        """
        if not self._lines:
            return
        data = memoryview("".join(self._lines).encode())
        self._lines.clear()
        try:
            while data:  # one call, unless the disk fills up
                data = data[os.write(self._file, data) :]
        except OSError as error:
            raise RunError(f"{self._what} {self.path} could not be written: {error.strerror}") from error

    def sync(self) -> None:
        """Flush, and force the file to disk. Once all workers did, its size is a place to resume at."""
        self.flush()
        os.fsync(self._file)

    def close(self) -> None:
        """Flush and close; a second call does nothing."""
        if self._file >= 0:
            try:
                self.flush()
            finally:
                os.close(self._file)
                self._file = -1
