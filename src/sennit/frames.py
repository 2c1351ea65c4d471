"""Whose code a frame of a traceback is: sennit's, an installed package's, or the user's."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

OURS = str(Path(__file__).resolve().parent)
"""Folder of sennit."""

_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def is_users(file: str) -> bool:
    """Whether a file is neither sennit's nor an installed package's."""
    return not file.startswith((OURS, *_LIBRARIES, "<"))


def raised_within(error: BaseException) -> str:
    """Where a called constructor or function of a user's raised: `file:line in function` of the user's innermost frame
    below the caller's, whatever that called. Nothing if there is none, as if the call itself did not fit.

    Call this where the error is caught: the outermost frame of its traceback is the caller's.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)[1:]):
        if is_users(frame.filename):
            return f"{frame.filename}:{frame.lineno} in {frame.name}"
    return ""
