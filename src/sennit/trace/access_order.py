"""Per layer, which subnet read which version of it and wrote which: the access log, short enough for a page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sennit.trace.access import Access

MOST_ROWS = 20_000
"""Subnets over all layers together."""

FEWEST, MOST = 8, 250
"""Subnets of one layer, however many layers there are."""

NOBODY = -1

Row = tuple[int, int, int, int | None, int]
"""Subnet, version that it read, worker that read it, version that it wrote (None: none), worker that wrote it."""


@dataclass
class LayerOrder:
    """Accesses to one layer.

    Attributes:
        rows: by subnet, the last ones.
        left_out: how many subnets before them used it.
    """

    rows: list[Row] = field(default_factory=list)
    left_out: int = 0


def access_order(accesses: Iterable[Access]) -> dict[str, LayerOrder]:
    """The order of accesses to each parameter group, by name; micro-batches and passes of a subnet are one row."""
    read: dict[str, dict[int, tuple[int, int]]] = {}
    wrote: dict[str, dict[int, tuple[int, int]]] = {}
    for a in accesses:
        if not isinstance(a.version, int):
            continue  # buffers have a write per micro-batch
        if a.phase == "U":
            wrote.setdefault(a.group, {})[a.seq] = (a.version, a.worker)
        elif a.phase == "F":
            read.setdefault(a.group, {}).setdefault(a.seq, (a.version, a.worker))
    most = min(MOST, max(FEWEST, MOST_ROWS // max(1, len(read))))
    found: dict[str, LayerOrder] = {}
    for group in sorted(read):
        seq_ids = sorted(read[group])
        shown = seq_ids[-most:]
        rows: list[Row] = []
        for y in shown:
            version, worker = wrote.get(group, {}).get(y, (None, NOBODY))
            rows.append((y, *read[group][y], version, worker))
        found[group] = LayerOrder(rows, len(seq_ids) - len(shown))
    return found
