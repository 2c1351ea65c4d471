"""Words for people."""

from __future__ import annotations


def counted(count: int, word: str) -> str:
    """A number and what it counts: `1 subnet`, `1,280 tasks`."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"
