"""What is fetched ahead is looked for once, and once more when a slot has been given up."""

from __future__ import annotations

from typing import Any

from sennit.memory.unlimited import Unlimited
from sennit.runtime.slot_use import SlotUse


class Store(Unlimited):
    """Has some groups, and notes what it is asked for."""

    limited = True

    def __init__(self) -> None:
        self.there, self.gone, self.asked = set[str](), 0, list[str]()

    def ahead(self, group: str, version: int) -> bool:
        self.asked.append(f"{group}{version}")
        return group in self.there

    def departed(self) -> int:
        return self.gone


class Reading:
    def version(self, group: str, seq_id: int) -> int:
        return seq_id - 1


def asked(use: SlotUse) -> str:
    store: Any = use.store
    store.asked.clear()
    use.look_ahead()
    return " ".join(store.asked)


def test_an_idle_worker_looks_only_for_what_is_missing() -> None:
    """
    runs to come   (7: a b) (8: b c) | (9: d), beyond the horizon
    there          a                   then b, then a slot is given up, then 7 has begun
    """
    store: Any = Store()
    reading, order = Reading(), object()
    use = SlotUse(store, reading, order, lambda: 0, horizon=2)  # type: ignore[arg-type]
    for seq_id, groups in ((7, "ab"), (8, "bc"), (9, "d")):
        use.upcoming.admit(seq_id, {0: [(group, 0) for group in groups]})
    store.there = {"a"}
    assert asked(use) == "a6 b6 b7 c7"
    assert asked(use) == "b6 b7 c7"
    store.there |= {"b", "c"}
    assert asked(use) == "b6 b7 c7"
    assert asked(use) == ""
    store.gone = 1
    assert asked(use) == "a6 b6 b7 c7"
    use.upcoming.begun(7, 0)
    assert asked(use) == "d8"
