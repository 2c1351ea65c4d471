"""`trace.jsonl` of a run: for each call a line of facts, then a line for each task. `events.py` reads it.

    {"facts":{"workers":2,"unit":"s",...}}
    {"worker":0,"kind":"F","seq_id":0,"micro_batch":0,"run":0,"start":0.013,"end":0.014,"ready":0.01,"left":0.01,...}

Keys of a task are the fields of `Span`; empty texts are left out. Times count from the beginning of the call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sennit.trace.appending import Appending
from sennit.trace.span import Span

FLUSH_LINES = 1024
"""Lines that a writer keeps before it appends them to the file, about two hundred kilobytes."""


class SpanLog(Appending):
    """Appends the spans of one worker.

    Args:
        path: the file; made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "the trace")
        self._texts: dict[str, str] = {}

    def write(self, span: Span) -> None:
        """Append a line, at the latest with the next flush."""
        worker, kind, y, j, run, start, end, ready, left, cause, of, by, launched, host, waited = span
        more = f',"by":"{by}"' if by else ""
        if host:
            more += f',"launched":{launched:.7f},"host":{host:.7f}'
        if waited:
            more += f',"waited":{waited:.7f}'
        if of:
            more = (self._texts.get(of) or self._text(of)) + more
        self._lines.append(
            f'{{"worker":{worker},"kind":"{kind}","seq_id":{y},"micro_batch":{j},"run":{run},"start":{start:.7f},'
            f'"end":{end:.7f},"ready":{ready:.7f},"left":{left:.7f},"cause":"{cause}"{more}}}\n'
        )
        if len(self._lines) >= FLUSH_LINES:
            self.flush()

    def count(self, name: str, worker: int, time: float, value: float) -> None:
        """Append a value of a counter, such as bytes in use."""
        self._lines.append(f'{{"counter":{json.dumps(name)},"worker":{worker},"time":{time:.7f},"value":{value!r}}}\n')

    def facts(self, facts: Mapping[str, Any]) -> None:
        """Begin a call."""
        self._lines.append(json.dumps({"facts": facts}, separators=(",", ":")) + "\n")

    def _text(self, of: str) -> str:
        known = self._texts[of] = f',"of":{json.dumps(of)}'
        return known
