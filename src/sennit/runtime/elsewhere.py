"""`Elsewhere`: what a worker tells other hosts. With one host there is nobody to tell."""

from __future__ import annotations

from typing import Protocol

from sennit.runtime.subnet import Subnet, Word
from sennit.supernet.sync import Sync


class Elsewhere(Protocol):
    """Other hosts, as one worker sees them."""

    def let_in(self, subnet: Subnet, sync: Sync) -> None:
        """A subnet has come in; called in order of seq id."""
        ...

    def published(self, group: str, key: int | Word) -> None:
        """This worker has made a version of a group, or moved its buffers to a word."""
        ...

    def put_away(self, low: int) -> None:
        """The lowest subnet that this worker has not finished is `low` now."""
        ...

    def rested(self, since: float) -> None:
        """This worker had nothing to do since then, of `time.monotonic`."""
        ...

    def counters(self) -> dict[str, float]:
        """Figures so far, by name, for the trace."""
        ...

    def gather(self, limit: int, halted: bool) -> None:
        """All workers rest: bring host 0 what it lacks of the state before subnet `limit`."""
        ...


class Nowhere:
    """One host."""

    def let_in(self, subnet: Subnet, sync: Sync) -> None: ...

    def published(self, group: str, key: int | Word) -> None: ...

    def put_away(self, low: int) -> None: ...

    def rested(self, since: float) -> None: ...

    def counters(self) -> dict[str, float]:
        return {}

    def gather(self, limit: int, halted: bool) -> None: ...
