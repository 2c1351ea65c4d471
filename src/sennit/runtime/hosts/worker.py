"""What a forked worker sets up if its run has several hosts."""

from __future__ import annotations

from pathlib import Path

from sennit.runtime.channel import Arena
from sennit.runtime.control import Line
from sennit.runtime.hosts.channel import HostsChannel
from sennit.runtime.hosts.mirror import Kept, Mirror
from sennit.runtime.share import Share
from sennit.trace.events import trace_beside


def far_channel(
    rank: int, share: Share, lines: dict[int, Line], arenas: list[Arena], launcher: Line, logs: Path
) -> tuple[HostsChannel, Path]:
    """A channel to the workers of all hosts, and the access log. Away from host 0 that is a file of the worker's own,
    whose lines go to host 0 at cuts."""
    hosts = share.hosts
    assert hosts is not None
    kept: list[Kept] = []
    if hosts.here:
        logs = logs.parent / str(rank) / logs.name
        logs.parent.mkdir()
        kept = [Kept(logs), Kept(trace_beside(logs))]
    far = {worker: line for worker, line in lines.items() if hosts.of(worker) != hosts.here}
    mirror = Mirror(rank, share, far, launcher, kept)
    share.elsewhere = mirror
    return HostsChannel(rank, lines, arenas, hosts, mirror), logs
