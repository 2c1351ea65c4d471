"""What the arguments of ready spaces may be; each refusal names the argument, the rule and the value."""

from __future__ import annotations

from sennit.errors import SpaceError


def refuse_below(least: int, **values: int) -> None:
    """Raise if one of the arguments is less than `least`."""
    for name, value in values.items():
        if value < least:
            raise SpaceError(f"space_args {name} must be at least {least}, got {value!r}")


def refuse_uneven(by: int, why: str, **values: int) -> None:
    """Raise if one of the arguments is no positive multiple of `by`."""
    for name, value in values.items():
        if value < by or value % by:
            raise SpaceError(f"space_args {name} must be a positive multiple of {by} ({why}), got {value!r}")


def refuse_no_share(**values: float) -> None:
    """Raise if one of the arguments is not from 0 to 1."""
    for name, value in values.items():
        if not 0 <= value <= 1:
            raise SpaceError(f"space_args {name} must be 0 to 1, got {value!r}")
