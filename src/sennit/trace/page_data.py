"""What the report page shows, as one JSON object that `page/*.js` reads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sennit.trace.access_order import LayerOrder
from sennit.trace.columns import columns, packed
from sennit.trace.events import Trace, name_of
from sennit.trace.idle import LONG, PARTS, TICK, Idleness
from sennit.trace.reasons import Reasons

MOST_LOSSES = 20_000
"""Points of the loss curve; of a longer run every second, third, ... is shown."""


@dataclass(frozen=True)
class Facts:
    """A titled list of facts, or a text.

    Attributes:
        rows: `(name, value)`.
        text: shown as it is.
    """

    title: str
    rows: Sequence[tuple[str, str]] = ()
    text: str = ""


@dataclass
class Content:
    """What is known. Everything but a title may be missing.

    Attributes:
        tiles: `(name, value)`, shown large.
        bubble_note: a sentence after the bubble's figures.
        losses: of each subnet in order; NaN where there is none.
        evaluations: with `seq_id`, `metric`, `mean` and `best`.
    """

    title: str
    subtitle: str = ""
    tiles: list[tuple[str, str]] = field(default_factory=list)
    trace: Trace | None = None
    bubble_note: str = ""
    losses: list[float] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    layers: Mapping[str, LayerOrder] = field(default_factory=dict)
    facts: list[Facts] = field(default_factory=list)


def page_data(content: Content) -> dict[str, Any]:
    """The object; holds no NaN."""
    trace = content.trace
    data: dict[str, Any] = {
        "title": content.title,
        "subtitle": content.subtitle,
        "tiles": content.tiles,
        "unit": "" if trace is None else trace.facts.get("unit", ""),
        "facts": [{"title": f.title, "rows": list(f.rows), "text": f.text} for f in content.facts],
    }
    if content.losses:
        stride = -(-len(content.losses) // MOST_LOSSES)
        shown = np.asarray(content.losses[::stride])
        scores = [{**e, **{k: _finite(e.get(k)) for k in ("mean", "best")}} for e in content.evaluations]
        data["loss"] = {"losses": packed(shown, "f4"), "first": 0, "stride": stride, "evaluations": scores}
    if content.layers:
        layers = {name: {"rows": order.rows, "leftOut": order.left_out} for name, order in content.layers.items()}
        data["access"] = {"groups": layers}
    if trace is not None and trace.spans:
        data.update(_timeline(trace, content.bubble_note))
    return data


def _timeline(trace: Trace, note: str) -> dict[str, Any]:
    idleness, reasons = Idleness.of(trace), Reasons(trace)
    place = {(s.worker, name_of(s), s.start): i for i, s in enumerate(trace.spans)}
    return {
        "spans": {**columns(trace), "note": _note(trace)},
        "longShare": LONG,
        "bubble": {
            "bubble": idleness.bubble,
            "makespan": idleness.makespan * TICK,
            "parts": PARTS,
            "workers": [{part: ticks * TICK for part, ticks in row.items()} for row in idleness.by_worker],
            "inTheEnd": [{part: ticks * TICK for part, ticks in row.items()} for row in reasons.in_the_end(idleness)],
            "note": note,
        },
        "idle": [
            {
                "worker": idle.worker, "start": idle.start * TICK, "end": idle.end * TICK,
                "parts": [(what, ticks * TICK) for what, ticks in idle.parts],
                "before": -1 if (s := idle.before) is None else place[s.worker, name_of(s), s.start],
                "words": reasons.words(idle),
            }
            for idle in idleness.long()
        ],
        "counters": list(_counters(trace, idleness.begins)),
    }  # fmt: skip


def _note(trace: Trace) -> str:
    said = f"{len(trace.spans):,} tasks of {trace.workers} worker{'s' if trace.workers > 1 else ''}."
    if trace.left_out:
        said += f" The {trace.left_out:,} before them are left out."
    if trace.calls > 1:
        said += f" The last of {trace.calls} calls: the run was resumed."
    return said


def _counters(trace: Trace, begins: float) -> Iterable[dict[str, Any]]:
    for name in sorted({c.counter for c in trace.counters}):
        workers: list[dict[str, Any]] = []
        for worker in sorted({c.worker for c in trace.counters if c.counter == name}):
            held = [c for c in trace.counters if c.counter == name and c.worker == worker]
            workers.append({"worker": worker, "x": [c.time - begins for c in held], "y": [c.value for c in held]})
        yield {"name": name, "workers": workers}


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
