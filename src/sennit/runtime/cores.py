"""Cores that this process and its workers may use, and what to say of more workers on a CPU than there are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def container_limit(name: str) -> str:
    """A limit of the container that this process runs in, if any."""
    try:
        return (CGROUP / name).read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True)
class Cores:
    """Of this host.

    Attributes:
        allowed: that this process may run on.
        limit: as many as it may use at a time; a container may grant less than one, or a fraction.
    """

    allowed: int
    limit: float

    @staticmethod
    def usable() -> Cores:
        """As they are now."""
        allowed = len(os.sched_getaffinity(0))
        quota = container_limit("cpu.max").split()
        limit = int(quota[0]) / int(quota[1]) if len(quota) == 2 and quota[0].isdecimal() else allowed
        return Cores(allowed, min(allowed, limit))

    @property
    def most(self) -> int:
        """Workers of one thread each that need not take turns."""
        return max(1, int(self.limit))


def crowded_words(workers: int, replicas: int, hosts: int, cores: Cores) -> str:
    """What to say of workers on a CPU that take turns at its cores; nothing if each can have one.

    Args:
        workers: on this host.
    """
    if workers <= cores.most:
        return ""
    fits = cores.most // replicas * replicas
    knob = f"use --workers {fits}" if fits and hosts == 1 else "use fewer --workers"
    there = f"{cores.limit:.3g} core{'s' * (cores.limit != 1)}"
    return (
        f"{workers} workers share {there} of this host and take turns, so times and bubbles say nothing about "
        f"{workers} cores; {knob}, or give this process more cores"
    )
