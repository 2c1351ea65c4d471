"""Whether a folder can be a run's, and whose it is: made, found empty or begun, and locked by one process.

The lock is the kernel's: it ends with the last process that holds it, however that ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from sennit.errors import UserError
from sennit.runtime.written import no_room

EXISTS = "--out {} exists already; add --resume to go on with that run, or name another folder"
LOCK = "lock"
BEGUN = ("losses.jsonl", "access.jsonl", "trace.jsonl")
"""Files that a run opens before it writes `run.json`; they are empty until then."""


def refuse_existing(path: Path) -> None:
    """Refuse the folder of a new run that is there already and not empty, before any work is done.

    Raises:
        UserError: it is.
    """
    if path.exists() and not empty(path):
        raise UserError(taken(path))


def make(path: Path) -> bool:
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
            raise no_room(path, error) from error
        raise UserError(f"--out {path} cannot be made: {error.strerror}; name another folder") from error
    return True


def empty(path: Path) -> bool:
    """Whether it is a folder that holds nothing."""
    return path.is_dir() and not any(path.iterdir())


def taken(path: Path) -> str:
    """Why a new run cannot have a path, and what to do."""
    if not path.is_dir():
        return f"--out {path}: a file stands where the folder should be; name another folder"
    if other := other_content(path):
        held = ", ".join(other[:5])
        return f"--out {path} exists already, and is no run folder: it holds {held}. Name another folder"
    return EXISTS.format(path)


def other_content(path: Path) -> list[str]:
    """What a folder without `run.json` holds beside what a run leaves that was killed before it wrote that."""
    if (path / "run.json").is_file():
        return []
    begun = (LOCK, ".run.json.writing")
    return sorted(
        held.name for held in path.iterdir()
        if held.name not in begun and not (held.name in BEGUN and held.is_file() and not held.stat().st_size)
    )  # fmt: skip


def refuse_other_content(path: Path) -> None:
    """Raise if a folder that is to be gone on with is no run's."""
    if other := other_content(path):
        raise UserError(
            f"--resume: {path} has no run.json, so it is no run folder; it holds {', '.join(other[:5])}. "
            "Name the --out of an earlier run, or a new folder"
        )


def locked(path: Path) -> int:
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
