"""What an exception means for a person: exit code, kind, and a message that fits on a screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sennit.errors import Interrupted, RunError, UserError

Kind = Literal["input", "failed", "interrupted", "bug"]

LINES = 30
"""Longest message, in lines; the middle of a longer one is left out."""

LONGEST = 1500
"""Longest line, in characters."""


@dataclass(frozen=True)
class Failure:
    """How a command ended early.

    Attributes:
        exit: exit code.
        kind: whose fault it is. Of a "bug" (ours) the traceback is shown as well.
        message: the rule, the values seen and the knob to turn.
    """

    exit: int
    kind: Kind
    message: str

    def short(self) -> str:
        """The message in at most `LINES` lines."""
        lines = [line if len(line) <= LONGEST else line[: LONGEST - 4] + " ..." for line in self.message.splitlines()]
        if len(lines) > LINES:
            half = LINES // 2
            left_out = f"  ... ({len(lines) - 2 * half + 1} lines left out)"
            lines = [*lines[:half], left_out, *lines[1 - half :]]
        return "\n".join(lines)


def failure_of(error: BaseException) -> Failure:
    """What `error` means."""
    if isinstance(error, Interrupted):
        return Failure(130, "interrupted", str(error))
    if isinstance(error, KeyboardInterrupt):
        return Failure(130, "interrupted", str(error) or "interrupted")
    if isinstance(error, UserError):
        return Failure(2, "input", str(error))
    if isinstance(error, RunError):
        return Failure(1, "failed", str(error))
    return Failure(1, "bug", f"{type(error).__name__}: {error}")
