"""`Leaving`: groups on their way back to the host.

step ── copies under way ── all there? ──▶ the version published, and whoever waits for it woken
"""

from __future__ import annotations

from collections.abc import Callable

from sennit.memory.device import Copy, Device
from sennit.memory.store import HostStore


class Leaving:
    """Of one store.

    Attributes:
        ring: wakes others when a version is published.
    """

    def __init__(self, host: HostStore, device: Device) -> None:
        self.host, self.device = host, device
        self.ring: Callable[[str], None] = lambda group: None
        self._groups: dict[str, tuple[int, list[Copy]]] = {}

    def __contains__(self, group: str) -> bool:
        return group in self._groups

    def __bool__(self) -> bool:
        return bool(self._groups)

    def version(self, group: str) -> int | None:
        """The one that is on its way."""
        gone = self._groups.get(group)
        return None if gone is None else gone[0]

    def copies(self, group: str) -> list[Copy]:
        """Those that bring it, none if it is not on its way."""
        return self._groups.get(group, (0, []))[1]

    def begin(self, group: str, version: int, copies: list[Copy]) -> list[Copy]:
        """Copies have been started that bring a version, besides those that bring it already. Returns all."""
        held = [*self.copies(group), *copies]
        self._groups[group] = version, held
        return held

    def settle(self, group: str) -> None:
        """Wait until a group that is on its way has arrived, and publish it."""
        if (gone := self._groups.pop(group, None)) is not None:
            for copy in gone[1]:
                self.device.finish(copy)
            self.host.publish(group, gone[0])
            self.ring(group)

    def poll(self) -> None:
        """Publish what has arrived."""
        for group, (_, copies) in list(self._groups.items()):
            if all(self.device.done(copy) for copy in copies):
                self.settle(group)

    def settle_all(self) -> None:
        """Wait for all."""
        for group in list(self._groups):
            self.settle(group)
