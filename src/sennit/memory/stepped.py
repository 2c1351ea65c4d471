"""`Stepped`: whose optimizer state stays with one worker, though others read the weights."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

Made = tuple[str, int, Tensor]
"""A group that has been stepped, its version, and the bytes of its parameters on the device (one dimension)."""


@dataclass(frozen=True)
class Stepped:
    """Of groups that several workers use, those that one worker alone steps.

    Attributes:
        here: by this worker.
        elsewhere: by another one.
    """

    here: frozenset[str] = frozenset()
    elsewhere: frozenset[str] = frozenset()


ANYWHERE = Stepped()
"""Nothing is known of any."""
