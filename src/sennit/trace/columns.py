"""Spans as columns of numbers, for the report page: some 60 bytes a span, decoded by the browser in one go.

`page/data.js` is the other end. Spans lie by worker and start; `by` is a place in that list, or
-1 if nobody is named and -2 if the maker is not in the list.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any, get_args

import numpy as np

from sennit.trace.events import Trace, name_of
from sennit.trace.span import Cause

TYPES = {"u1": "<u1", "u2": "<u2", "i4": "<i4", "f4": "<f4", "f8": "<f8"}
"""Names that `page/data.js` knows, and numpy's."""

NOBODY, ELSEWHERE = -1, -2


def packed(values: Iterable[float] | np.ndarray, kind: str) -> dict[str, str]:
    """An array as base64 of little-endian numbers."""
    array = np.asarray(values if isinstance(values, np.ndarray) else list(values)).astype(TYPES[kind])
    return {"type": kind, "base64": base64.b64encode(array.tobytes()).decode()}


def columns(trace: Trace) -> dict[str, Any]:
    """The spans of a trace; times from the first task's start."""
    spans = trace.spans
    begins = min((span.start for span in spans), default=0.0)
    kinds = sorted({span.kind for span in spans})
    causes: Sequence[str] = get_args(Cause)
    names = sorted({span.of for span in spans} | {""})
    place = {name_of(span): i for i, span in enumerate(spans) if span.kind != "U"}
    name_at = {name: i for i, name in enumerate(names)}
    return {
        "n": len(spans),
        "workers": trace.workers,
        "kinds": kinds,
        "causes": causes,
        "of": names,
        "columns": {
            "worker": packed((s.worker for s in spans), "u2"),
            "kind": packed((kinds.index(s.kind) for s in spans), "u1"),
            "cause": packed((causes.index(s.cause) for s in spans), "u1"),
            "seq": packed((s.seq_id for s in spans), "i4"),
            "micro": packed((s.micro_batch for s in spans), "i4"),
            "run": packed((s.run for s in spans), "i4"),
            "of": packed((name_at[s.of] for s in spans), "i4"),
            "by": packed((place.get(s.by, ELSEWHERE if s.by else NOBODY) for s in spans), "i4"),
            "start": packed((s.start - begins for s in spans), "f8"),
            "length": packed((s.end - s.start for s in spans), "f4"),
            "ready": packed((s.ready - begins for s in spans), "f8"),
            "left": packed((s.left - begins for s in spans), "f8"),
        },
    }
