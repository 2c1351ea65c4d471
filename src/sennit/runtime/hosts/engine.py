"""The crew of a host: host 0's commands all workers, another one's looks after its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sennit.runtime.hosts.crew import HostsCrew
from sennit.runtime.hosts.guest import GuestCrew
from sennit.runtime.hosts.meeting import Meeting
from sennit.runtime.launcher import Crew
from sennit.runtime.segment import State
from sennit.runtime.share import Share
from sennit.supernet.samplers import Feed, Result


def crew_of(
    meeting: Meeting, share: Share, logs: Path, feed: Feed | None, on_result: Callable[[Result], None],
    inherited: list[int], state: State | None,
) -> Crew:  # fmt: skip
    """The crew that goes with this host."""
    assert share.hosts is not None
    if share.hosts.here:
        return GuestCrew(share, logs, meeting=meeting, hosts=share.hosts)
    return HostsCrew(share, logs, feed, on_result, inherited=inherited, meeting=meeting, state=state)
