"""`Unlimited`: what a store says of memory that has no budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

from sennit.memory.eviction import Key
from sennit.memory.stepped import Made
from sennit.memory.tally import Tally


class Unlimited:
    """Everything has its place; nothing is pinned, and nothing need be fetched ahead."""

    limited = False

    def together(self) -> AbstractContextManager[None]:
        """Around steps that may be taken at once."""
        return nullcontext()

    def announce(self, ring: Callable[[str], None]) -> None:
        """Whoever steps rings, since a version is published with its step."""

    def foresee(self, next_use: Callable[[Key], float]) -> None:
        """Nothing leaves."""

    def expect(self, groups: Iterable[str]) -> None:
        """A subnet has come in. Any fits."""

    def may_run(self, groups: Iterable[str], seq_id: int, lowest: int | None) -> bool:
        return True

    def pin(self, group: str, seq_id: int) -> None:
        """It stays anyway."""

    def unpin(self, groups: Iterable[str], seq_id: int) -> None:
        """It stays anyway."""

    def here(self, group: str) -> bool:
        return True

    def bring(self, group: str, version: int) -> None:
        """It is there, or comes when it is acquired."""

    def ready(self, group: str, version: int) -> None:
        """Not counted."""

    def counted(self) -> Tally | None:
        return None

    def ahead(self, group: str, version: int) -> bool:
        return True

    def departed(self) -> int:
        return 0

    def relieve(self) -> None:
        """Nothing can leave."""

    def poll(self) -> None:
        """Nothing is on its way."""

    def expecting(self) -> bool:
        return False

    def pass_on(self, to: Callable[[Sequence[Made]], None], start: int) -> None:
        """Nobody else reads what is stepped here, but from the host."""

    def take(self, made: Iterable[Made]) -> None:
        """They are read from the host."""
