"""Files of a run that are whole: replaced at once, forced to disk, cut back to where a checkpoint was."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sennit.errors import CheckpointError, RunError
from sennit.runtime.checkpoint import FULL, sync_folder


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
        raise no_room(path, error) from error


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


def no_room(path: Path, error: OSError) -> RunError:
    """What to raise for a file that could not be written."""
    if error.errno in FULL:
        return RunError(f"the disk is full: {path} could not be written ({error.strerror}); make room, then --resume")
    return RunError(f"{path} could not be written: {error.strerror or error}")
