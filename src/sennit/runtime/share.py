"""What the workers of a run share, and the parts of a worker that differ between devices."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from sennit.executor.capture import Capturing
from sennit.memory.eviction import Key
from sennit.memory.stepped import Made
from sennit.memory.store import HostStore
from sennit.memory.tally import Tally
from sennit.plan.plan import Plans
from sennit.profile.costs import Costs
from sennit.recipe import Placement, Recipe
from sennit.runtime.bells import Bells
from sennit.runtime.board import Board
from sennit.runtime.channel import Channel
from sennit.runtime.elsewhere import Elsewhere, Nowhere
from sennit.runtime.subnet import Word
from sennit.supernet.build import Built

if TYPE_CHECKING:
    from sennit.runtime.hosts.hosts import Hosts
    from sennit.runtime.worker import Worker


class DeviceStore(Protocol):
    """A worker's view of the host store, with slots on its device."""

    def holds(self, group: str, version: int) -> bool:
        """Whether that version of a parameter group can be acquired now."""
        ...

    def version(self, group: str) -> int:
        """The newest version of a parameter group that this worker knows of."""
        ...

    def acquire(self, group: str, version: int) -> dict[str, Any]:
        """Leaves of a parameter group in that version, on the device."""
        ...

    def seen(self, group: str, version: int) -> int:
        """The version word beside the bytes that `acquire` gave out."""
        ...

    def buffers(self, group: str) -> dict[str, Tensor]:
        """Tensors of a buffer group, to be written in place."""
        ...

    def remember(self, group: str) -> None:
        """Copy a buffer group aside, so that a subnet's forward can be taken back."""
        ...

    def move(self, group: str, word: Word) -> None:
        """A forward has written the buffers; publish their word."""
        ...

    def constant(self, name: str) -> Tensor:
        """A parameter or buffer that never changes."""
        ...

    def step(self, group: str, grads: dict[str, Tensor], lr: float, version: int) -> None:
        """Optimizer step of the group to `version`, published."""
        ...

    def together(self) -> AbstractContextManager[None]:
        """Around steps that may be taken at once, at its end."""
        ...

    limited: bool
    """Whether there is a budget."""

    def announce(self, ring: Callable[[str], None]) -> None:
        """Learn to wake others when a version is published after its step."""
        ...

    def foresee(self, next_use: Callable[[Key], float]) -> None:
        """Learn to tell which of two slots is used later."""
        ...

    def expect(self, groups: Iterable[str]) -> None:
        """A subnet has come in that reads these parameter groups on this worker.

        Raises:
            RunError: they do not fit into the budget.
            RuntimeError: without a budget, of a device that has no room; they come when they are acquired.
        """
        ...

    def may_run(self, groups: Iterable[str], seq_id: int, lowest: int | None) -> bool:
        """Whether there is room for a forward that reads these groups.

        Args:
            lowest: the lowest unfinished subnet of all workers, or one below it; None if the order is a list.
        """
        ...

    def pin(self, group: str, seq_id: int) -> None:
        """A live graph of a subnet uses a group that has been acquired."""
        ...

    def unpin(self, groups: Iterable[str], seq_id: int) -> None:
        """One that used these is gone."""
        ...

    def ready(self, group: str, version: int) -> None:
        """A forward that will read a group in this version has become ready."""
        ...

    def here(self, group: str) -> bool:
        """Whether a group has a slot, whatever its version."""
        ...

    def bring(self, group: str, version: int) -> None:
        """Start fetching what a forward that begins now reads."""
        ...

    def ahead(self, group: str, version: int) -> bool:
        """Start fetching what will be read. False if it must wait."""
        ...

    def departed(self) -> int:
        """How many slots have been given up so far."""
        ...

    def relieve(self) -> None:
        """The device is full: let leave what can."""
        ...

    def poll(self) -> None:
        """Publish what has come back to the host by now."""
        ...

    def expecting(self) -> bool:
        """Whether something is on its way back, whose arrival nobody tells."""
        ...

    def counters(self) -> dict[str, float]:
        """Figures about the time since the last call, by name, for the trace."""
        ...

    def counted(self) -> Tally | None:
        """Sums of what `counters` has given so far, of a store with a budget."""
        ...

    def pass_on(self, to: Callable[[Sequence[Made]], None], start: int) -> None:
        """Learn to tell others' devices of groups stepped here, each with its version and its bytes on the device; and
        that what others step from subnet `start` on comes from theirs."""
        ...

    def take(self, made: Iterable[Made]) -> None:
        """Groups as another worker has stepped them."""
        ...

    def flush(self) -> None:
        """Bring everything that this worker has changed to the host store, and wait until it is there."""
        ...


class Gate(Protocol):
    """Decides when a forward may read a group."""

    def open(self, group: str, seq_id: int, version: int) -> bool: ...


class VersionGate:
    """Opens when the store holds exactly the version that `Sync` names."""

    def __init__(self, worker: Worker) -> None:
        self.store = worker.store

    def open(self, group: str, seq_id: int, version: int) -> bool:
        return self.store.holds(group, version)


class NoGate:
    """Always open: asynchronous reads wait for no version."""

    def __init__(self, worker: Worker) -> None:
        pass

    def open(self, group: str, seq_id: int, version: int) -> bool:
        return True


@dataclass(frozen=True)
class Parts:
    """Parts of a worker that a test may replace by broken ones, to show that they are caught.

    Attributes:
        gate: makes the check that opens a group; None for `VersionGate`.
        store: makes the slots of a CPU worker from the host store; None for `CpuStore`.
        channel: put around the channel of a CPU worker; None for none.
        executor: put around the executor; None for none.
        capturing: how layers are captured, for `GraphExecutor`; None for what the placement says.
    """

    gate: Callable[[Worker], Gate] | None = None
    store: Callable[[HostStore], DeviceStore] | None = None
    channel: Callable[[Channel], Channel] | None = None
    executor: Callable[[Any], Any] | None = None
    capturing: Callable[[torch.device], Capturing] | None = None


REAL_PARTS = Parts()


@dataclass
class Share:
    """Made before the fork, seen by every worker.

    Attributes:
        low: per worker, the lowest subnet it has not finished; in shared memory.
        start: first subnet of this run.
        in_flight: how many subnets may be unfinished, counted from the lowest.
        words: last word of each buffer group before `start`.
        versions: newest version of each parameter group before `start`.
        costs: what blocks take, as far as is known; orders look at it, results do not depend on it.
        waits: of virtual devices.
        bulk: subnets between two steps; a cut lies between two bulks.
        board: who made the newest versions, for the trace.
        bells: wake workers that wait for a word in shared memory.
        hosts: which worker is on which host; None for one host.
        elsewhere: what a worker tells other hosts; each worker has its own.
        probing: tell the launcher the norm of every group's gradient, before clipping.
        gpus: of this host, if workers compute there; they share them if there are fewer than workers.
    """

    built: Built
    recipe: Recipe
    placement: Placement
    plans: Plans
    host: HostStore
    low: np.ndarray
    start: int
    in_flight: int
    words: dict[str, Word]
    versions: dict[str, int]
    parts: Parts
    board: Board
    bells: Bells
    costs: Costs
    waits: Costs | None = None
    bulk: int = 1
    probing: bool = False
    gpus: int = 0
    hosts: Hosts | None = None
    elsewhere: Elsewhere = field(default_factory=Nowhere)
    frozen: frozenset[str] = frozenset()
    """Groups that do not train (`shared = "frozen"`)."""
    wandering: frozenset[str] = frozenset()
    """Groups that more than one worker uses."""
    numbers: Mapping[str, int] = field(default_factory=dict[str, int])
    """Of parameter groups, by which workers that share a run take turns at stepping them."""
    lone: Mapping[str, int] = field(default_factory=dict[str, int])
    """Parameter groups that one worker steps for every subnet, with that worker."""
    readers: Mapping[str, frozenset[int]] = field(default_factory=dict[str, frozenset[int]])
    """All workers that use these."""

    def publishing(self, group: str, version: int, word: Word | None = None) -> Publishing:
        """Around what writes a group's new version or moves its buffers (to `word`): noted on the board, told by a bell
        and to other hosts."""
        return Publishing(self, group, version, word)


class Publishing:
    """See `Share.publishing`. Not a generator: each step of a group enters one, while its GPU waits."""

    __slots__ = ("group", "share", "version", "word")

    def __init__(self, share: Share, group: str, version: int, word: Word | None) -> None:
        self.share, self.group, self.version, self.word = share, group, version, word

    def __enter__(self) -> None:
        self.share.board.note(self.group, self.version)

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:  # what failed has published nothing
            self.share.board.note(self.group, self.version)
            self.share.bells.ring(self.group)
            self.share.elsewhere.published(self.group, self.version if self.word is None else self.word)


def low_water(workers: int, start: int) -> np.ndarray:
    """Shared counters: the lowest subnet each worker has not finished."""
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    low = np.frombuffer(memory, dtype=np.int64, count=workers)
    low[:] = start
    return low
