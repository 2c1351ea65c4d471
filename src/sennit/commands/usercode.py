"""Errors that a user's own file raises: told as such, with the line, instead of as a traceback through sennit."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sennit.errors import RunError, UserError

_OURS = str(Path(__file__).resolve().parents[1])
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def place_in_user_code(error: BaseException) -> str | None:
    """`file:line in function` of the innermost frame that is neither sennit's nor an installed package's.

    None if there is none, or if it called sennit again and that raised: then it may be our bug.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(_OURS):
            return None
        if not frame.filename.startswith((*_LIBRARIES, "<")):
            return f"{frame.filename}:{frame.lineno} in {frame.name}"
    return None


@contextmanager
def blaming(kind: type[UserError | RunError], doing: str) -> Iterator[None]:
    """Turn what user code raises inside into `kind`. Other errors pass.

    Args:
        doing: what was being done, as "while the recipe was checked".
    """
    try:
        yield
    except (UserError, RunError):
        raise
    except Exception as error:
        place = place_in_user_code(error)
        if place is None:
            raise
        raise kind(f"{place} raised {type(error).__name__} {doing}: {error}") from error
