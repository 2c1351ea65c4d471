"""`Waiting`: what a forward must wait for, and when it is there.

Versions and buffer words are written into shared memory by whoever steps a group, so nobody sends a message for
them; a worker looks at those that its own tasks wait for, and a bell (`runtime.bells`) wakes it when one has changed.
"""

from __future__ import annotations

from collections.abc import Hashable

from sennit.memory.store import HostStore
from sennit.program.cut import Run
from sennit.runtime.share import Gate
from sennit.runtime.subnet import Subnet, Word
from sennit.schedule.ready import Ready
from sennit.supernet.sync import Sync


class Waiting:
    """Events of one worker's forwards."""

    def __init__(self, host: HostStore, sync: Sync, gate: Gate, ready: Ready) -> None:
        self.host, self.sync, self.gate, self.ready = host, sync, gate, ready
        self.versions: dict[tuple[str, int, int], None] = {}
        self.words: dict[tuple[str, Word], None] = {}
        self.awaited: set[tuple[str, int]] = set()
        """(group, version) of `versions`."""

    def groups(self) -> set[str]:
        """Groups of which a version or a word is awaited."""
        return {group for group, *_ in (*self.versions, *self.words)}

    def events(self, subnet: Subnet, run: Run, micro_batch: int) -> list[Hashable]:
        """What the forward of a micro-batch on `run` still waits for: values, versions, its buffers' turn."""
        y = subnet.seq_id
        events: list[Hashable] = [("value", y, micro_batch, run.index, a.value) for a in run.arrivals]
        for group in subnet.read_by_run[run.index]:
            event = (group, y, self.sync.reads(group, y))
            if not self.gate.open(*event):
                self.versions[event] = None
                self.awaited.add((group, event[2]))
                events.append(("version", *event))
        for group, use in subnet.first_moves(run):
            word = subnet.word_before(group, micro_batch, use)
            if self.word(group) != word:
                self.words[group, word] = None
                events.append(("word", group, word))
        return events

    def word(self, group: str) -> Word:
        """The word beside a buffer group's bytes."""
        seq_id, micro_batch, use = (int(n) for n in self.host.words[group][0][:3])
        return seq_id, micro_batch, use

    def look(self) -> None:
        """Tell `ready` which awaited versions and words have come."""
        for event in [e for e in self.versions if self.gate.open(*e)]:
            del self.versions[event]
            self.awaited.discard((event[0], event[2]))
            self.ready.happened(("version", *event))
        for group, word in [e for e in self.words if self.word(e[0]) == e[1]]:
            del self.words[group, word]
            self.ready.happened(("word", group, word))
