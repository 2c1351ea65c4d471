"""Lines between the workers of different hosts, made by the launchers before they fork.

For each pair of hosts the higher one connects: once for every pair of workers, and to host 0 once more for every worker
of its own, for what host 0's launcher and that worker have to say.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from sennit.errors import RunError
from sennit.runtime.control import Line
from sennit.runtime.hosts.hosts import Hosts
from sennit.runtime.hosts.meeting import PATIENCE_S, Meeting, raise_end, turn_away
from sennit.runtime.hosts.wire import HOST, LAUNCHER, WORKER, Hello, accept, connect


@dataclass
class Mesh:
    """This host's ends.

    Attributes:
        peers: of each worker here, its line to each worker elsewhere.
        launchers: by worker: on host 0 the lines to workers elsewhere, elsewhere those of the workers here to host 0.
    """

    peers: dict[int, dict[int, Line]] = field(default_factory=dict)
    launchers: dict[int, Line] = field(default_factory=dict)


def mesh(meeting: Meeting, hosts: Hosts, addresses: dict[int, tuple[str, int]]) -> Mesh:
    """Connect to lower hosts, and take the connections of higher ones.

    Raises:
        RunError: some do not come.
        PeerGone: a host has ended meanwhile.
    """
    mine, made = hosts.on(hosts.here), Mesh({rank: {} for rank in hosts.on(hosts.here)})
    for host in range(hosts.here):
        for rank in mine:
            for peer in hosts.on(host):
                sock = connect(addresses[host], meeting.key, Hello(WORKER, rank, peer, 0))
                made.peers[rank][peer] = Line(sock, f"worker {peer}")
            if not host:
                made.launchers[rank] = Line(connect(addresses[0], meeting.key, Hello(LAUNCHER, rank, 0, 0)), "launcher")
    higher = hosts.workers - mine.stop
    missing = higher * (len(mine) + (not hosts.here))
    deadline = time.monotonic() + PATIENCE_S
    while missing:
        came = accept(meeting.listener, meeting.key, 1.0)
        if came is None:
            for host, line in meeting.lines.items():
                for kind, *rest in line.receive():  # nothing but bad news
                    if kind == "end":
                        raise_end(rest[0])
                    raise RunError(f"host {host} does not start its workers: {rest}")
            if time.monotonic() > deadline:
                raise RunError(f"{missing} connections of other hosts' workers did not come within {PATIENCE_S:g} s")
            continue
        sock, hello = came
        line = Line(sock, f"worker {hello.source}")
        if hello.kind == HOST:
            turn_away(line, hello.source)
            continue
        if hello.kind == LAUNCHER:
            made.launchers[hello.source] = line
        else:
            made.peers[hello.target][hello.source] = line
        missing -= 1
    return made
