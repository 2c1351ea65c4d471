"""Errors that a user's own file raises: told with that file's line, not by a traceback through sennit."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from sennit.errors import RunError, UserError
from sennit.frames import OURS, is_users

FRAMES = 12
"""How many of the innermost frames a message shows."""

_PLACE = "_sennit_place"


def place_in_user_code(error: BaseException) -> str | None:
    """`file:line in function` of the innermost frame that is neither sennit's nor an installed package's.

    None if there is none, or if it called sennit again and that raised: then it may be our bug.
    """
    if _PLACE in error.__dict__:
        return error.__dict__[_PLACE]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(OURS):
            return None
        if is_users(frame.filename):
            return f"{frame.filename}:{frame.lineno} in {frame.name}"
    return None


def keep_place(error: BaseException) -> None:
    """Note the place in the exception itself, which can be sent to another process; its traceback cannot."""
    error.__dict__[_PLACE] = place_in_user_code(error)


def calls_of(error: BaseException) -> str:
    """The innermost frames, one a line, outermost first."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    return "\n".join(f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames)


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
    except SystemExit as error:
        where = place_in_user_code(error) or "code of the recipe"
        raise kind(f"{where} called sys.exit({error.code!r}) {doing}; raise an error instead") from error
    except Exception as error:
        place = place_in_user_code(error)
        if place is None:
            raise
        raise kind(f"{place} raised {type(error).__name__} {doing}: {error}") from error
