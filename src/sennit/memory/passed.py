"""`Passed`: which versions come from the device that steps them, and which from the host.

    version       before the run │ while the run goes on
    comes from    the host       │ the device that steps it ── no place for it here, or given up since ──▶ the host

The host has every version that is asked for (`Asked`), and at a cut the last one of all. To fetch from there as soon as
it is there, while it is on its way from the other device, would keep this device waiting twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sennit.memory.asked import ASKED, Asked
from sennit.memory.stepped import Made, Stepped
from sennit.memory.store import HostStore


class Passed:
    """Of one worker.

    Args:
        stepped: who steps what several workers use.

    Attributes:
        to: tells other devices of groups stepped here; None if nothing goes from device to device.
        start: the first subnet of the run.
        ring: wakes who steps what is asked for.
    """

    def __init__(self, host: HostStore, stepped: Stepped) -> None:
        self.stepped, self.asked = stepped, Asked(host)
        self.to: Callable[[Sequence[Made]], None] | None = None
        self.start = 0
        self.ring: Callable[[str], None] = lambda name: None
        self._given_up: dict[str, int] = {}
        """The newest version of a group that has been here and is no more, or came to no place."""

    def comes(self, group: str, version: int) -> bool:
        """Whether a version comes from the device that steps it."""
        if self.to is None or group not in self.stepped.elsewhere:
            return False
        return version > self._given_up.get(group, self.start - 1)

    def give_up(self, group: str, version: int) -> None:
        """This version and those before it are read from the host. They may be told of in any order."""
        if group in self.stepped.elsewhere:
            self._given_up[group] = max(version, self._given_up.get(group, version))
            if self.to is not None:
                self.asked.ask(group)
                self.ring(ASKED)

    def stays(self, group: str) -> bool:
        """Whether what is stepped here need not go to the host before a cut: all that read it get it otherwise."""
        return self.to is not None and group in self.stepped.here and group not in self.asked

    def wanted(self) -> list[str]:
        """Groups stepped here that stayed so far, and that somebody reads from the host from now on."""
        return [] if self.to is None else [group for group in self.asked.look() if group in self.stepped.here]
