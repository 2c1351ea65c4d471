"""The folder of one run (docs/files.md), and who may write to it.

    RUN/  run.json       recipe, placement, fingerprint      result.json   figures and hashes of the end
          losses.jsonl   one line a subnet                   access.jsonl  every access to a group
          trace.jsonl    every task in time                  trace.json    the same, for Perfetto
          checkpoints/   see `sennit.runtime.checkpoint`
          lock           held with flock by the process that runs; its content is that process's id

The lock is the kernel's: it ends with the last process that holds it, however that ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from sennit.errors import CheckpointError, RunError, UserError
from sennit.runtime.checkpoint import FULL, sync_folder

EXISTS = "--out {} exists already; add --resume to go on with that run, or name another folder"
LOCK = "lock"
BEGUN = ("losses.jsonl", "access.jsonl", "trace.jsonl")
"""Files that a run opens before it writes `run.json`; they are empty until then."""
RUN_KEYS: dict[str, type] = {
    "recipe": dict, "base": str, "placement": dict, "engine": str, "fingerprint": dict, "steps": int, "identity": str
}  # fmt: skip
RESULT_KEYS: dict[str, type] = {"steps": int, "weights_sha256": str, "optimizer_sha256": str, "losses_sha256": str}
"""What must be in the files of a run."""
RUNS = Path("runs")
"""Where runs go that were given no folder."""


def refuse_existing(path: Path) -> None:
    """Refuse the folder of a new run that is there already and not empty, before any work is done.

    Raises:
        UserError: it is.
    """
    if path.exists() and not _empty(path):
        raise UserError(_taken(path))


class RunFolder:
    """A run folder, locked by this process until `close` (or the end of a `with`).

    Attributes:
        path: the folder.
        resumed: whether an earlier run lies in it.
    """

    def __init__(self, path: Path, *, resumed: bool, lock: int | None) -> None:
        self.path, self.resumed, self._lock = path, resumed, lock

    @staticmethod
    def create(path: Path | str | None, resume: bool, name: str = "run") -> RunFolder:
        """Make the folder of a new run, or take that of an earlier one, and lock it.

        Args:
            path: the folder; None stands for `runs/<name>-<n>`: with the next n, or, to resume, the last.
            resume: go on with what is there. Nothing there starts a new run.
            name: the recipe's.

        Raises:
            UserError: the folder holds something (without `resume`), is no run folder, is in use, or cannot be made.
        """
        if path is None and not (resume and _last(name)):
            return _next(name)
        path = Path(path) if path is not None else RUNS / f"{name}-{_last(name)}"
        made = _make(path)
        if not made and not resume and not _empty(path):
            raise UserError(_taken(path))
        if not made:
            _refuse_other_content(path)
        lock = _locked(path)
        return RunFolder(path, resumed=(path / "run.json").is_file(), lock=lock)

    @staticmethod
    def open(path: Path | str, *, lock: bool = False) -> RunFolder:
        """A run that exists, to read it; with `lock`, to add to it.

        Raises:
            UserError: it is no run folder, or (with `lock`) in use.
        """
        path = Path(path)
        if not (path / "run.json").is_file():
            what = "has no run.json, so it is no run folder" if path.is_dir() else "is no folder"
            raise UserError(f"{path} {what}; give the --out of an earlier `sennit train`")
        return RunFolder(path, resumed=True, lock=_locked(path) if lock else None)

    @property
    def losses(self) -> Path:
        return self.path / "losses.jsonl"

    @property
    def access(self) -> Path:
        return self.path / "access.jsonl"

    @property
    def spans(self) -> Path:
        return self.path / "trace.jsonl"

    @property
    def trace(self) -> Path:
        return self.path / "trace.json"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write `name` (`run.json`, `result.json`) whole or not at all.

        Raises:
            RunError: it could not be written, for instance because the disk is full.
        """
        write_json(self.path / name, content)

    def read_json(self, name: str) -> dict[str, Any]:
        """Read `name`.

        Raises:
            UserError: it is missing or no JSON object.
        """
        path = self.path / name
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        except ValueError as error:
            raise UserError(f"{path} is not valid JSON: {error}") from error
        if not isinstance(content, dict):
            raise UserError(f"{path} must hold a JSON object, got {content!r:.80}")
        return content

    def read_run(self) -> dict[str, Any]:
        """`run.json`, with all that other commands need of it.

        Raises:
            UserError: it is missing, damaged, or lacks something.
        """
        return _with(self.path / "run.json", self.read_json("run.json"), RUN_KEYS)

    def read_result(self) -> dict[str, Any] | None:
        """`result.json`, or None if the run has not ended well yet.

        Raises:
            UserError: it is damaged, or lacks something.
        """
        if not (self.path / "result.json").is_file():
            return None
        virtual = self.read_run()["placement"].get("device") == "virtual"  # trained nothing, so has no hashes
        return _with(
            self.path / "result.json", self.read_json("result.json"), {"steps": int} if virtual else RESULT_KEYS
        )

    def handles(self) -> list[int]:
        """Open files that a forked process must close, so that the lock ends with this process."""
        return [] if self._lock is None else [self._lock]

    def rewind(self, lengths: Mapping[str, int]) -> None:
        """Cut logs back to what they held at a checkpoint.

        Args:
            lengths: file name to bytes. A length of 0 removes what is there.

        Raises:
            CheckpointError: a log is shorter than it was then.
        """
        for name, length in lengths.items():
            truncate(self.path / name, length)

    def close(self) -> None:
        """Let others use the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _with(path: Path, content: dict[str, Any], keys: Mapping[str, type]) -> dict[str, Any]:
    for key, kind in keys.items():
        if not isinstance(content.get(key), kind):
            there = f"{key} = {content[key]!r:.60}" if key in content else f"no {key!r}"
            raise UserError(f"{path} is damaged: it has {there}, and should have {key!r} of type {kind.__name__}")
    return content


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
            raise _no_room(self.path, error) from error

    def sync(self) -> int:
        """Force all lines to disk, and return how many bytes they are: what a checkpoint remembers."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise _no_room(self.path, error) from error
        return self._file.tell()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what a full disk kept from being written
            self._file.close()


def truncate(path: Path, length: int) -> None:
    """Cut a log to `length` bytes; a missing one counts as empty.

    Raises:
        CheckpointError: it is shorter.
    """
    size = path.stat().st_size if path.is_file() else 0
    if size < length:
        raise CheckpointError(
            f"{path} has {size} bytes, but had {length} when the checkpoint was made: it was shortened or "
            "removed. Put it back, or remove the checkpoint to resume from an older one"
        )
    if size > length:
        os.truncate(path, length)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file beside its place, force it to disk and rename it.

    Raises:
        RunError: it could not be written. What was there before still is.
    """
    aside = path.with_name(f".{path.name}.writing")
    try:
        with aside.open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=1, allow_nan=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise _no_room(path, error) from error


def _no_room(path: Path, error: OSError) -> RunError:
    if error.errno in FULL:
        return RunError(f"the disk is full: {path} could not be written ({error.strerror}); make room, then --resume")
    return RunError(f"{path} could not be written: {error.strerror or error}")


def _numbers(name: str) -> list[int]:
    if not RUNS.is_dir():
        return []
    found = [re.fullmatch(re.escape(name) + r"-(\d+)", p.name) for p in RUNS.iterdir()]
    return sorted(int(match[1]) for match in found if match)


def _last(name: str) -> int | None:
    return max(_numbers(name), default=None)


def _next(name: str) -> RunFolder:
    while True:
        path = RUNS / f"{name}-{(_last(name) or 0) + 1}"
        if _make(path):  # else another process took the number first
            return RunFolder(path, resumed=False, lock=_locked(path))


def _make(path: Path) -> bool:
    """Make the folder; False if it is there already."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir()
    except FileExistsError:
        if path.is_dir():
            return False
        raise UserError(f"--out {path}: a file stands where the folder should be; name another folder") from None
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _no_room(path, error) from error
        raise UserError(f"--out {path} cannot be made: {error.strerror}; name another folder") from error
    return True


def _empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _taken(path: Path) -> str:
    """Why a new run cannot have a path, and what to do."""
    if not path.is_dir():
        return f"--out {path}: a file stands where the folder should be; name another folder"
    if other := _other_content(path):
        held = ", ".join(other[:5])
        return f"--out {path} exists already, and is no run folder: it holds {held}. Name another folder"
    return EXISTS.format(path)


def _other_content(path: Path) -> list[str]:
    """What a folder without `run.json` holds beside what a run leaves that was killed before it wrote that."""
    if (path / "run.json").is_file():
        return []
    begun = (LOCK, ".run.json.writing")
    return sorted(
        held.name for held in path.iterdir()
        if held.name not in begun and not (held.name in BEGUN and held.is_file() and not held.stat().st_size)
    )  # fmt: skip


def _refuse_other_content(path: Path) -> None:
    if other := _other_content(path):
        raise UserError(
            f"--resume: {path} has no run.json, so it is no run folder; it holds {', '.join(other[:5])}. "
            "Name the --out of an earlier run, or a new folder"
        )


def _locked(path: Path) -> int:
    """Descriptor of the locked file."""
    try:
        handle = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UserError(f"{path} cannot be written to: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(handle, 64, 0).decode(errors="replace").strip()
        os.close(handle)
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise UserError(f"{path} cannot be locked: {error.strerror}; use a local disk") from error
        raise UserError(
            f"{path} is in use by process {holder or 'unknown'}; wait for it, stop it, or name another --out"
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle
