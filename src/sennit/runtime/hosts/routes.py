"""`Routes`: who makes every version, and which hosts it must reach. Every worker finds the same, without asking.

    let_in(y)  for each group of y: the version it reads, made by w ──▶ needed on the hosts of y's workers that read it,
                                                                        with state where y's own version will be made
                                    y's own version, made by owner(y)

Pure bookkeeping: no bytes, no lines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from sennit.runtime.hosts.hosts import Hosts
from sennit.runtime.hosts.shipping import Key
from sennit.runtime.subnet import Subnet, Word
from sennit.supernet.sync import Sync


@dataclass(frozen=True)
class Need:
    """A version must be on a host of which the maker is not.

    Attributes:
        key: version of parameters, word of buffers.
        maker: worker that makes it, or has.
        reader: worker that is the first to need it there.
        state: with optimizer state.
    """

    group: str
    key: Key
    maker: int
    reader: int
    state: bool


class Routes:
    """What all workers know of makers and readers.

    Args:
        frozen: groups that never change.
        delayed: groups under `delayed:K`.
        waiting: of those, the versions whose gradients waited when the run began, each with the worker that makes it.
    """

    def __init__(
        self, hosts: Hosts, frozen: Collection[str], delayed: Collection[str], waiting: Mapping[str, Mapping[int, int]]
    ) -> None:
        self.hosts, self.frozen, self.delayed = hosts, frozen, delayed
        self.makers: dict[str, dict[int, int]] = {group: dict(makers) for group, makers in waiting.items()}
        """Group to version to worker; of versions that may still be asked for."""
        self.movers: dict[str, tuple[Word, int]] = {}
        """Buffer group to the last word of the subnets let in, and who writes it."""

    def let_in(self, subnet: Subnet, sync: Sync) -> Iterator[Need]:
        """What a subnet needs from other hosts; called in order of seq id."""
        readers: dict[str, dict[int, int]] = {}
        for run, groups in subnet.read_by_run.items():
            for group in groups:
                for worker in subnet.spread[run]:
                    readers.setdefault(group, {}).setdefault(self.hosts.of(worker), worker)
        for group, owner in subnet.owner.items():
            if group not in self.frozen:
                yield from self._parameters(
                    subnet.seq_id, group, owner, readers[group], sync.reads(group, subnet.seq_id)
                )
        yield from self._buffers(subnet)

    def _parameters(self, y: int, group: str, owner: int, readers: dict[int, int], version: int) -> Iterator[Need]:
        makers, steps_on = self.makers.setdefault(group, {}), self.hosts.of(owner)
        for host, worker in readers.items():
            state = host == steps_on and group not in self.delayed
            yield from self._need(group, version, makers.get(version), host, worker, state)
        if group in self.delayed:
            yield from self._need(group, y - 1, makers.get(y - 1), steps_on, owner, True)
        for old in [v for v in makers if v < version]:
            del makers[old]
        makers[y] = owner

    def _buffers(self, subnet: Subnet) -> Iterator[Need]:
        for j in range(len(subnet.spread[0]) if subnet.spread else 0):
            for run in subnet.runs:
                worker, last = subnet.worker(run.index, j), dict(subnet.last_moves(run))
                for group, use in subnet.first_moves(run):
                    if (moved := self.movers.get(group)) is not None:
                        word, mover = moved
                        assert word == subnet.word_before(group, j, use), (group, word)
                        yield from self._need(group, word, mover, self.hosts.of(worker), worker, True)
                    self.movers[group] = ((subnet.seq_id, j, last[group]), worker)

    def _need(self, group: str, key: Key, maker: int | None, host: int, reader: int, state: bool) -> Iterator[Need]:
        """Nothing for what its host has: every host has what was there at the start."""
        if maker is not None and self.hosts.of(maker) != host:
            yield Need(group, key, maker, reader, state)

    def newest(self, group: str, horizon: int) -> int | None:
        """The last version of a parameter group up to `horizon` that this run has made; None if there is none."""
        return max((v for v in self.makers.get(group, ()) if v <= horizon), default=None)
