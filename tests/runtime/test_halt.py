"""Which subnets a worker still runs when one cannot be trained. What is stepped then: `test_stepping.py`."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from sennit.runtime.worker import Worker


@pytest.mark.parametrize("found", [math.inf, 2, 4, 7])
def test_the_earliest_counts_whoever_found_it_and_whenever_it_is_heard(found: float) -> None:
    """The launcher may tell of another worker's before it has heard of the earlier one that was found here."""
    told: list[Any] = []
    worker: Any = SimpleNamespace(
        entry=SimpleNamespace(halt=found, limit=12), heard=0, said_cut=12, channel=SimpleNamespace(receive=lambda: []),
        launcher=SimpleNamespace(receive=lambda: [told.pop()]),
    )  # fmt: skip
    for halt in (9, 5, 3):
        told.append(("halt", halt))
        Worker.hear(worker)
        assert worker.entry.halt == min(found, halt)
        assert worker.entry.limit == halt and worker.said_cut == -1
