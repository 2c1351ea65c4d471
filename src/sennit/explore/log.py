"""The log of a search: one line of JSON per result, appended and synced before the next candidate is drawn.

The first line says which search it is. A process that is killed while writing leaves a torn last line; it
is cut off when the log is opened again. Anything else that is wrong with a log is an error.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from sennit.errors import CheckpointError, RunError, UserError


class Log:
    """An open log, locked against other processes. Use it in a `with`.

    Args:
        path: the file; made if missing.
        identity: JSON-safe; what a search must have in common with the one in the file.
        resume: False refuses a file that holds results.

    Attributes:
        entries: what the file holds.

    Raises:
        UserError: another search in the file, results although `resume` is False, or the file is in use.
        CheckpointError: a line in the middle is not JSON.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any], resume: bool = True) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.file = open(path, "a+b")  # noqa: SIM115 - closed by `close`
        except OSError as error:
            raise UserError(f"cannot write the search log {path}: {error.strerror}") from error
        try:
            self._lock()
            self.entries = self._read(json.loads(json.dumps(dict(identity))), resume)
        except BaseException:
            self.close()
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(
                f"{self.path} is in use by another search; wait for it, or choose another folder"
            ) from error

    def _read(self, identity: dict[str, Any], resume: bool) -> list[dict[str, Any]]:
        self.file.seek(0)
        content = self.file.read()
        lines = content.split(b"\n")
        whole, good = lines[:-1], 0  # what follows the last newline is torn, or empty
        entries: list[dict[str, Any]] = []
        for i, line in enumerate(whole):
            try:
                entry = json.loads(line)
                if not isinstance(entry, dict):
                    raise ValueError("not an object")
            except ValueError as error:
                if i == len(whole) - 1:
                    break
                raise CheckpointError(
                    f"line {i + 1} of {self.path} is damaged ({error}); cut the file before it to go on "
                    "from there, or choose another folder"
                ) from error
            entries.append(entry)
            good += len(line) + 1
        if good < len(content):
            self.file.truncate(good)
        if not entries:
            self.append({"search": identity})
            self._sync_folder()
            return []
        self._check(entries[0].get("search"), identity)
        if len(entries) > 1 and not resume:
            raise UserError(
                f"{self.path} already holds {len(entries) - 1} results; resume this search, or choose another folder"
            )
        return entries[1:]

    def _check(self, found: Any, identity: dict[str, Any]) -> None:
        if not isinstance(found, dict):
            raise CheckpointError(f"{self.path} is not the log of a search; choose another folder")
        keys = sorted({*found, *identity}, key=str)
        different = [key for key in keys if found.get(key) != identity.get(key)]
        if different:
            there, here = ({k: _short(side.get(k)) for k in different} for side in (found, identity))
            shown = "; ".join(f"{k}: {there[k]} there, {here[k]} here" for k in different)
            raise UserError(f"{self.path} holds another search ({shown}); give the same settings, or another folder")

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one line, and wait until it is on the disk.

        Raises:
            RunError: the disk is full, or the file cannot be written.
        """
        try:
            self.file.write(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
            self.file.flush()
            os.fsync(self.file.fileno())
        except OSError as error:
            raise RunError(
                f"cannot write {self.path}: {error.strerror}; all earlier results are kept, resume when there is room"
            ) from error

    def _sync_folder(self) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def close(self) -> None:
        self.file.close()  # frees the lock

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
