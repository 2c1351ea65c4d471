"""Where data sets lie, and how a file gets there: whole, checked, or not at all.

The folder is `$SENNIT_DATA`, or `~/.cache/sennit`. Several workers may look for the same file at once, so a
file is built under a lock, beside its place, and moved there when it is complete.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from sennit.errors import UserError

VARIABLE = "SENNIT_DATA"


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """The data folder: `root` if given, else `$SENNIT_DATA`, else `~/.cache/sennit`. It need not exist."""
    chosen = root if root is not None else os.environ.get(VARIABLE) or Path.home() / ".cache" / "sennit"
    return Path(chosen).expanduser()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def write_atomically(path: Path, content: bytes) -> None:
    """Put `content` at `path`: afterwards the file is complete, or it is what it was before.

    Raises:
        UserError: the folder cannot be written, or the disk is full.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            try:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                os.replace(file.name, path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror or error}; set ${VARIABLE} to a folder with room"
        ) from error


def read_file(path: str | os.PathLike[str], what: str) -> bytes:
    """The bytes at `path`.

    Raises:
        UserError: there is no readable file; `what` says what it should hold.
    """
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise UserError(f"{what} cannot be read from {str(path)!r}: {error.strerror or error}") from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time builds the file at `path`; the lock ends with the process that holds it.

    Raises:
        UserError: the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = open(path.with_name(f".{path.name}.lock"), "w")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise UserError(
            f"{path.parent} cannot be written: {error.strerror or error}; set ${VARIABLE} to a folder with room"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def package_file(package: str, inside: str) -> Path:
    """A data file inside an installed package, found without importing the package (which takes seconds).

    Raises:
        UserError: the package is not installed, or has no such file.
    """
    shown = {"sklearn": "scikit-learn"}.get(package, package)
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"this data set comes with {shown}, which is not installed: pip install 'sennit[data]'")
    for folder in spec.submodule_search_locations:
        path = Path(folder) / inside
        if path.is_file():
            return path
    raise UserError(f"the installed {shown} has no file {inside!r}, which holds this data set; try another version")
