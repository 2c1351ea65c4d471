"""`Mirror`: pushes what one worker makes to the hosts that need it next, and puts in place what others push here.

    let_in(9)      needs of subnet 9 whose maker is this worker:  made already ── push
                                                                  not yet ── wanted
    published(g)   wanted by hosts ── push

Between cuts nothing else travels. At a cut host 0's launcher asks for what it lacks (`gather`).
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sennit.memory.store import VERSION
from sennit.runtime.bells import LOW
from sennit.runtime.control import Line
from sennit.runtime.hosts.routes import Need, Routes
from sennit.runtime.hosts.shipping import Key, Shipping
from sennit.runtime.placing import heir_of
from sennit.runtime.share import Share
from sennit.runtime.subnet import Subnet
from sennit.schedule.order import Task
from sennit.supernet.sync import Sync

RESTS = 4096
"""Rests that are remembered, to see which of them a push has ended."""


@dataclass
class Figures:
    """What one worker has sent to other hosts and waited for.

    Attributes:
        pushes, pushed_bytes: versions and buffers, for subnets to come.
        gathered_bytes: versions, gradients and buffers, for cuts.
        tensor_bytes: values and gradients.
        stall_s: at rest, while a version for this worker had been made and was on its way.
    """

    pushes: int = 0
    pushed_bytes: int = 0
    gathered_bytes: int = 0
    tensor_bytes: int = 0
    stall_s: float = 0.0


@dataclass
class _Sent:
    """Versions of a group that a host has from this worker; whether with state."""

    keys: dict[Key, bool] = field(default_factory=dict)

    def has(self, key: Key, state: bool) -> bool:
        return key in self.keys and (self.keys[key] or not state)

    def add(self, key: Key, state: bool, forget_below: Key) -> None:
        self.keys[key] = self.keys.get(key, False) or state
        for old in [k for k in self.keys if k < forget_below]:  # type: ignore[operator]
            del self.keys[old]


class Kept:
    """A file that this worker appends to elsewhere in this process, and whose lines go to host 0.

    It loses its name as soon as it is open there, too, so that a killed process leaves nothing behind.
    """

    def __init__(self, path: Path) -> None:
        path.touch()
        self.path, self.file = path, path.open("r+b")

    def forget_name(self) -> None:
        """Both ends are open."""
        self.path.unlink()
        for folder in (self.path.parent, self.path.parent.parent):
            with contextlib.suppress(OSError):  # not empty: others have files there
                folder.rmdir()

    def take(self) -> bytes:
        """What was written since the last call."""
        self.file.seek(0)
        data = self.file.read()
        self.file.truncate(0)
        return data


class Mirror:
    """One worker's side of what is pushed between hosts.

    Args:
        lines: to the workers of other hosts.
        launcher: line to host 0's launcher.
        logs: what this worker appends to and host 0 does not see; empty on host 0.
    """

    def __init__(self, rank: int, share: Share, lines: Mapping[int, Line], launcher: Line, logs: list[Kept]) -> None:
        assert share.hosts is not None
        self.rank, self.share, self.lines, self.launcher, self.logs = rank, share, lines, launcher, logs
        self.hosts, self.host, self.shipping = share.hosts, share.host, Shipping(share.host)
        heirs = {group: heir_of(group, share.built, share.plans) for group in self.host.delayed}
        waiting = {
            group: dict.fromkeys(range(share.versions[group] + 1, share.start), heir) for group, heir in heirs.items()
        }
        self.routes = Routes(self.hosts, share.frozen, self.host.delayed, waiting)
        self.made: dict[str, Key] = {}
        """The newest that this worker has made of each group."""
        self.wanted: dict[tuple[str, Key], list[Need]] = {}
        self.sent: dict[tuple[str, int], _Sent] = {}
        self.figures = Figures()
        self.rests: deque[tuple[float, float]] = deque(maxlen=RESTS)
        self.named = logs
        """Of `logs`, those that still have a name."""
        self.counted = 0.0
        """Rests up to here have been counted as stalls, or not."""

    # -- out

    def let_in(self, subnet: Subnet, sync: Sync) -> None:
        for log in self.named:
            log.forget_name()
        self.named = []
        for need in self.routes.let_in(subnet, sync):
            if need.maker != self.rank:
                continue
            made = self.made.get(need.group)
            if made is not None and made >= need.key:  # type: ignore[operator]
                self.push(need)
            else:
                self.wanted.setdefault((need.group, need.key), []).append(need)

    def published(self, group: str, key: Key) -> None:
        if isinstance(key, int):
            self.shipping.state_word(group)[VERSION] = key
        self.made[group] = key
        for need in self.wanted.pop((group, key), ()):
            self.push(need)

    def push(self, need: Need) -> None:
        """Send a version to the host of `need`, unless it is there."""
        at = self.hosts.of(need.reader)
        sent = self.sent.setdefault((need.group, at), _Sent())
        if sent.has(need.key, need.state):
            return
        sent.add(need.key, need.state, self._forget_below(need.group, need.key))
        shipment = self.shipping.pack(need.group, need.key, need.state)
        moment, task = self.share.board.made(need.group, _version(need.key)) or (time.monotonic(), None)
        self.lines[need.reader].send(("push", shipment, moment - self.hosts.offset, task))
        self.figures.pushes += 1
        self.figures.pushed_bytes += shipment.nbytes

    def _forget_below(self, group: str, key: Key) -> Key:
        if group in self.host.delayed and isinstance(key, int):
            return key - self.host.shared.lag
        return key

    def put_away(self, low: int) -> None:
        for host in range(self.hosts.count):
            if host != self.hosts.here:
                there = self.hosts.on(host)
                self.lines[there[self.rank % len(there)]].send(("low", self.rank, low))

    # -- in

    def heard(self, kind: str, rest: list[Any]) -> None:
        """What a worker of another host says, values and gradients apart."""
        if kind == "push":
            self.arrived(*rest)
        else:
            rank, value = rest
            low = self.share.low
            before = low.min()
            low[rank] = value
            if low.min() > before:
                self.share.bells.ring(LOW)

    def arrived(self, shipment: Any, moment: float, task: Task | None) -> None:
        """Put a version in place, for all workers of this host."""
        note = (shipment.group, _version(shipment.key), task)
        self.shipping.put(shipment, lambda: self.share.board.told(*note))
        self.share.bells.ring(shipment.group)
        self.stalled(moment + self.hosts.offset)

    # -- stalls

    def rested(self, since: float) -> None:
        self.rests.append((since, time.monotonic()))

    def stalled(self, made: float) -> None:
        """A version has come that was made then: time at rest since was spent while it was on its way."""
        begin, now = max(made, self.counted), time.monotonic()
        for start, end in reversed(self.rests):
            if end <= begin:
                break
            self.figures.stall_s += max(0.0, end - max(start, begin))
        self.counted = now

    # -- cuts

    def counters(self) -> dict[str, float]:
        return {
            "bytes pushed to other hosts": self.figures.pushed_bytes,
            "bytes of values and gradients to other hosts": self.figures.tensor_bytes,
            "seconds at rest while a version was on its way": self.figures.stall_s,
        }

    def gather(self, limit: int, halted: bool) -> None:
        if self.hosts.here:
            for group, key in sorted(self.made.items()):
                if halted or not self.superseded(group, key, limit):
                    self.bring(group, key)
            for group in sorted(self.host.delayed):
                self.bring_gradients(group, limit, halted)
            for log in self.logs:
                self.launcher.send(("lines", log.path.name, log.take()))
        self.launcher.send(("gathered", vars(self.figures).copy()))

    def superseded(self, group: str, key: Key, limit: int) -> bool:
        """Whether another worker has made what is newest before `limit`."""
        if not isinstance(key, int):
            return self.routes.movers[group] != (key, self.rank)
        horizon = limit - self.host.shared.lag if group in self.host.delayed else limit - 1
        return self.routes.newest(group, horizon) != key

    def bring(self, group: str, key: Key) -> None:
        """Bring host 0's launcher a version, unless its host has it."""
        sent = self.sent.setdefault((group, 0), _Sent())
        if sent.has(key, True):
            return
        sent.add(key, True, self._forget_below(group, key))
        shipment = self.shipping.pack(group, key, True)
        self.launcher.send(("version", shipment))
        self.figures.gathered_bytes += shipment.nbytes

    def bring_gradients(self, group: str, limit: int, halted: bool) -> None:
        """Gradients that wait under `delayed:K`, of subnets before `limit`."""
        makers = self.routes.makers.get(group, {})
        for x, maker in makers.items():
            kept = maker == self.rank and x > self.host.version(group) and self.host.kept_gradient(group, x) is not None
            if kept and (halted or limit - self.host.shared.lag < x < limit):
                data = self.shipping.gradient(group, x)
                self.launcher.send(("gradient", group, x, data))
                self.figures.gathered_bytes += len(data)


def _version(key: Key) -> int:
    return key if isinstance(key, int) else key[0]
