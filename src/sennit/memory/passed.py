"""`Passed`: which versions come from the device that steps them, and which from the host.

    version       before the run │ while the run goes on
    comes from    the host       │ the device that steps it ── no place for it here, or given up since ──▶ the host

The host has every version in the end. To fetch it from there as soon as it has it, while it is on its way from the
other device, would keep this device waiting twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sennit.memory.stepped import Made


class Passed:
    """Of one worker.

    Args:
        elsewhere: groups that another worker alone steps.

    Attributes:
        to: tells other devices of groups stepped here; None if nothing goes from device to device.
        start: the first subnet of the run.
    """

    def __init__(self, elsewhere: frozenset[str]) -> None:
        self.elsewhere = elsewhere
        self.to: Callable[[Sequence[Made]], None] | None = None
        self.start = 0
        self._given_up: dict[str, int] = {}
        """The newest version of a group that has been here and is no more, or came to no place."""

    def comes(self, group: str, version: int) -> bool:
        """Whether a version comes from the device that steps it."""
        if self.to is None or group not in self.elsewhere:
            return False
        return version > self._given_up.get(group, self.start - 1)

    def give_up(self, group: str, version: int) -> None:
        """This version and those before it are read from the host. They may be told of in any order."""
        if group in self.elsewhere:
            self._given_up[group] = max(version, self._given_up.get(group, version))
