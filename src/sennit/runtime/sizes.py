"""`Sizes`: bytes that runs send and keep, from a profile."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sennit.profile.profile import Profile
from sennit.program.cut import Run
from sennit.simulate.load import Piece


@dataclass(frozen=True)
class Sizes:
    """Of a micro-batch with `by` times as many rows as the profile's."""

    profile: Profile
    by: float = 1.0

    def given(self, piece: Piece, run: Run) -> Piece:
        """A piece with the bytes of its run: each message is as large as that to the reader that gets most."""
        made: dict[int, float] = {}
        for step in run.steps:
            kind = self.profile.kind(step.name)
            for value in step.writes:
                made[value] = 0.0 if kind is None else kind.out_bytes / len(step.writes)
        sent: dict[int, float] = {}
        for value, readers in run.departures:
            for reader in readers:
                sent[reader] = sent.get(reader, 0.0) + made[value]
        kinds = [kind for step in run.steps if (kind := self.profile.kind(step.name)) is not None]
        held = sum(kind.held_bytes for kind in kinds)
        return replace(piece, out_bytes=self.by * max(sent.values(), default=0.0), held_bytes=self.by * held)
