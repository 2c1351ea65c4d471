"""`Tally`: what came of the slots of a device, counted up."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass
class Tally:
    """Sums since the beginning, or since somebody took them.

    Attributes:
        reads: groups that forwards read, counted when the forward became ready.
        hits: those that were resident then, in the version to be read.
        fetches: groups copied to the device.
        ahead: those of them fetched before a task asked.
        right: those of these that a forward used before they were evicted.
        fetched_bytes, written_bytes: to the device and back.
        passed: groups that came from the device of who stepped them.
        stall_s: seconds for which tasks waited for what was not there yet.
    """

    reads: int = 0
    hits: int = 0
    fetches: int = 0
    ahead: int = 0
    right: int = 0
    fetched_bytes: int = 0
    written_bytes: int = 0
    passed: int = 0
    stall_s: float = 0.0

    def add(self, other: Tally) -> None:
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)

    def rates(self) -> dict[str, float | None]:
        """Hit rate, and the part of predictions that were right; None where there was nothing to count."""
        return {
            "hit_rate": self.hits / self.reads if self.reads else None,
            "right_rate": self.right / self.ahead if self.ahead else None,
        }

    def counters(self) -> dict[str, float]:
        """For the trace, by name. A rate of nothing is 1."""
        return {
            "cache hits, part of reads": self.hits / self.reads if self.reads else 1.0,
            "right predictions, part of fetches ahead": self.right / self.ahead if self.ahead else 1.0,
            "fetched, bytes": float(self.fetched_bytes),
            "written back, bytes": float(self.written_bytes),
            "waited for layers, s": self.stall_s,
        }
