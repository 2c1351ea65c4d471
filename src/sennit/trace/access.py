"""The access log: who read or wrote which version of which group, for what.

One JSON object a line of `access.jsonl` (docs/files.md):

    {"worker":0,"step":"blocks.3.1","group":"blocks.3.1","seq":7,"micro":0,"phase":"F","rw":"R","version":4}

`phase` is `F` (forward), `B` (backward, recomputation included) or `U` (optimizer step; `micro` is -1 there).
`version` is what stood beside the bytes when they were copied: for parameters the seq id of the last subnet
included, for buffers that move in forward `[seq, micro]` of the last write; -1 and [-1, -1] at first.

A run of steps over M micro-batches logs

    for each micro-batch   F R  for each group of each step      B R  the same groups again
                           F W  for each buffer group
    for each group         U W  its new version, also if no gradient came

A write in phase U names the subnet whose gradient it adds. Under `delayed:K` it comes K-1 subnets later.
Workers append whole lines to one file, each from a buffer of its own, so lines of different workers stand in
no particular order. Nothing in the log depends on that order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from sennit.errors import UserError
from sennit.trace.appending import Appending

Phase = Literal["F", "B", "U"]
Mode = Literal["R", "W"]
Version = int | tuple[int, int]

FLUSH_LINES = 4096
"""Lines that a writer keeps before it appends them to the file, about half a megabyte."""


class Access(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of the log.

    Attributes:
        worker: who accessed.
        step: for which step of the program.
        group: what.
        seq, micro: for which subnet and micro-batch; micro is -1 in phase U.
        phase: forward, backward or optimizer step.
        rw: read or write.
        version: the version read or written; a pair for buffers.
    """

    worker: int
    step: str
    group: str
    seq: int
    micro: int
    phase: Phase
    rw: Mode
    version: Version


class AccessLog(Appending):
    """Appends accesses of one worker to a file that other workers append to as well.

    Args:
        path: the file; made if it is not there.
        worker: this worker's number.
    """

    def __init__(self, path: Path, worker: int) -> None:
        super().__init__(path, "the access log")
        self._head = f'{{"worker":{worker},"step":'
        self._names: dict[tuple[str, str], str] = {}

    def parameters(self, step: str, group: str, seq: int, micro: int, phase: Phase, rw: Mode, version: int) -> None:
        """Log an access to a group of parameters."""
        head = self._names.get((step, group)) or self._named(step, group)
        self._lines.append(f'{head}{seq},"micro":{micro},"phase":"{phase}","rw":"{rw}","version":{version}}}\n')
        if len(self._lines) >= FLUSH_LINES:
            self.flush()

    def reads(self, read: Iterable[tuple[str, str, int]], seq: int, micro: int, phase: Phase) -> None:
        """Log that a task read groups of parameters: `(step, group, version)` each."""
        known, rest = self._names, f'{seq},"micro":{micro},"phase":"{phase}","rw":"R","version":'
        self._lines += [f"{known.get((s, g)) or self._named(s, g)}{rest}{version}}}\n" for s, g, version in read]
        if len(self._lines) >= FLUSH_LINES:
            self.flush()

    def buffers(
        self, step: str, group: str, seq: int, micro: int, phase: Phase, rw: Mode, version: tuple[int, int]
    ) -> None:
        """Log an access to a group of buffers that move in forward."""
        head = self._names.get((step, group)) or self._named(step, group)
        self._lines.append(
            f'{head}{seq},"micro":{micro},"phase":"{phase}","rw":"{rw}","version":[{version[0]},{version[1]}]}}\n'
        )
        if len(self._lines) >= FLUSH_LINES:
            self.flush()

    def _named(self, step: str, group: str) -> str:
        head = f'{self._head}{json.dumps(step)},"group":{json.dumps(group)},"seq":'
        self._names[step, group] = head
        return head


def read_accesses(path: Path) -> Iterator[Access]:
    """The lines of a log. A last line without its end, left by a process that was killed, is not returned.

    Raises:
        UserError: the file cannot be read, or a line is no access; names the line.
    """
    decode = msgspec.json.Decoder(Access).decode
    try:
        file = path.open("rb")
    except OSError as error:
        raise UserError(f"cannot read the access log {path}: {error.strerror}") from error
    with file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield decode(line)
            except msgspec.DecodeError as error:  # a wrong type or key is one too
                shown = line[:100].decode(errors="replace").rstrip()
                raise UserError(f"{path}, line {number} is no access: {error}: {shown}") from error


def forget_from(access: Path, seq_id: int) -> None:
    """Drop lines of subnets from `seq_id` on from an access log."""
    aside = access.with_name(".access.jsonl.writing")
    with access.open("rb") as old, aside.open("wb") as new:
        new.writelines(line for line in old if json.loads(line)["seq"] < seq_id)
    aside.replace(access)
