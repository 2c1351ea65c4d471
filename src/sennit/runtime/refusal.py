"""A subnet whose program is refused while others train: the same words from every engine.

recording is refused ─▶ `refused` ─▶ the subnets before it are finished ─▶ `told`, and the state before it is kept
"""

from __future__ import annotations

from sennit.errors import SpaceError, SubnetError


def refused(error: SpaceError, seq_id: int) -> SubnetError:
    """What an engine raises for it."""
    return SubnetError(f"{error}\nstopped at subnet {seq_id}", seq_id)


def told(error: SubnetError, kept: str) -> SpaceError:
    """What a run ends with.

    Args:
        kept: what there is of those before it.
    """
    return SpaceError(f"{error}; {kept}")
