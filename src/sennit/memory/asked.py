"""`Asked`: groups whose new versions somebody reads from the host, though they are passed on from device to device.

    reader    no slot for a group, or given up ── asks for it ──┐
    stepper   looks ◀── a byte of shared memory per group ──────┘
                └─ what it has of the group goes to the host, and from then on each version at once

Of all others the host has the last version at a cut, which is when it is read.
"""

from __future__ import annotations

import numpy as np

from sennit.memory.store import HostStore

ASKED = "a group asked for"
"""What a worker that passes versions on is woken for, beside groups."""


class Asked:
    """As one worker sees it."""

    def __init__(self, host: HostStore) -> None:
        self._bytes = host.asked
        self._names = list(host.coming_and_going)
        self._numbers = {group: i for i, group in enumerate(self._names)}
        self._known: set[str] = set()

    def __contains__(self, group: str) -> bool:
        return group in self._known

    def ask(self, group: str) -> None:
        """From now on the host gets each version of it as soon as it is made."""
        self._bytes[self._numbers[group]] = 1

    def look(self) -> list[str]:
        """Groups asked for since the last look. Nothing is ever taken back, so the number of them tells."""
        now = self._bytes.copy()  # others ask meanwhile
        if np.count_nonzero(now) == len(self._known):
            return []
        fresh = [group for i in np.flatnonzero(now) if (group := self._names[i]) not in self._known]
        self._known.update(fresh)
        return fresh
