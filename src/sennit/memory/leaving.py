"""`Leaving`: groups on their way back to the host.

step ── copies under way ── all there? ──▶ the version published, and whoever waits for it woken
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from sennit.memory.device import Copy, Device
from sennit.memory.layout import BOUNDARY
from sennit.memory.slot import SMALL, Slot
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
        self._written = 0

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

    def bring(
        self, changed: Sequence[tuple[str, int, Slot]], stays: frozenset[str] = frozenset()
    ) -> list[Copy]:  # fmt: skip
        """Start copying what has changed of slots that are marked alike, each with its group and version.

        Args:
            stays: groups whose optimizer state is left where it is.

        Returns:
            What brings them, and what has been under way before.
        """
        memory, into, source = self.host.memory, list[Tensor](), list[Tensor]()
        for group, _, slot in changed:
            if slot.dirty:
                into.append(slot.region.bytes(memory)[BOUNDARY:])
                source.append(slot.flat[BOUNDARY:])
            state = slot.state_region
            if group not in stays and slot.state is not None and state is not None:
                end = min((p.offset for key, p in state.places.items() if key.endswith(SMALL)), default=state.nbytes)
                into.append(state.bytes(memory)[BOUNDARY:end])
                source.append(slot.state[BOUNDARY:end])
            slot.dirty, slot.owes_state = False, group in stays
        self._written += sum(tensor.nbytes for tensor in source)
        copies = [self.device.write(into, source, changed[0][2].used)] if into else []
        return [copy for group, version, _ in changed for copy in self.begin(group, version, copies)]

    def written(self) -> int:
        """Bytes, since the last call."""
        written, self._written = self._written, 0
        return written

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
