"""`Reading`: the weights that a task computes with.

* csp, bulk: the version that `Sync` names. It stays until the backward is done, because whoever writes it waits.
* asp:stash: the newest version there is, as a copy, so that the backward sees the same (PipeDream).
* asp:none: the newest there is, in place. A step in between changes what the backward computes with (TAP).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor

from sennit.runtime.share import DeviceStore
from sennit.supernet.sync import Sync
from sennit.trace.access import Phase


class Reading(Protocol):
    """Weights of one worker's tasks."""

    def version(self, group: str, seq_id: int) -> int:
        """The version that a forward of `seq_id` would read now."""
        ...

    def acquire(self, group: str, seq_id: int) -> Mapping[str, Any]:
        """Leaves of a parameter group for a forward of `seq_id`."""
        ...

    def seen(self, group: str, seq_id: int, micro_batch: int, phase: Phase) -> int:
        """The version word beside the bytes that this phase has read."""
        ...


class Exact:
    """Reads what `Sync` names."""

    def __init__(self, store: DeviceStore, sync: Sync) -> None:
        self.store, self.sync = store, sync

    def version(self, group: str, seq_id: int) -> int:
        return self.sync.reads(group, seq_id)

    def acquire(self, group: str, seq_id: int) -> Mapping[str, Any]:
        return self.store.acquire(group, self.sync.reads(group, seq_id))

    def seen(self, group: str, seq_id: int, micro_batch: int, phase: Phase) -> int:
        return self.store.seen(group, self.sync.reads(group, seq_id))


class Newest:
    """Reads what is there.

    Args:
        stash: keep a copy for the backward.
    """

    def __init__(self, store: DeviceStore, stash: bool) -> None:
        self.store, self.stash = store, stash
        self.read: dict[tuple[str, int, int], int] = {}
        """(group, subnet, micro-batch) to the version that the forward read."""

    def version(self, group: str, seq_id: int) -> int:
        return self.store.version(group)

    def acquire(self, group: str, seq_id: int) -> Mapping[str, Tensor]:
        held = self.store.acquire(group, self.store.version(group))
        # Leaves of their own either way. `data` has a version counter of its own: autograd must not notice steps.
        return {
            name: (leaf.detach().clone() if self.stash else leaf.data).requires_grad_(leaf.requires_grad)
            for name, leaf in held.items()
        }

    def seen(self, group: str, seq_id: int, micro_batch: int, phase: Phase) -> int:
        now = self.store.seen(group, self.store.version(group))
        if phase == "F":
            self.read[group, seq_id, micro_batch] = now
            return now
        then = self.read.pop((group, seq_id, micro_batch), now)
        return then if self.stash else now
