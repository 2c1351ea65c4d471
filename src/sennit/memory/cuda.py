"""`CudaStore`: slots of a GPU worker. The host store stays the one place where all state is at a cut.

    a subnet is let in ── what has no slot yet sets out ──▶ fetched beside what is computed ──▶ read, stepped, kept

A group has one slot on the device (K under `delayed:K`), kept once it is there. It is copied in, header and all, when
the version wanted is not the one in the slot, and stepped in the slot. No launch waits for a copy of what this worker
alone uses: it would wait for all that the device has before it. Only the log of a layer's first forward does, for the
word that has come (`seen`). What the worker has changed goes back to the host at every cut (`flush`), or at once
where another worker may read it next (`wandering`). The host's version word is written by the CPU after the bytes
have arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from sennit.memory.device import Copy, Device
from sennit.memory.due import Due
from sennit.memory.gradients import as_gradients
from sennit.memory.group_step import GroupStep, Optimizer
from sennit.memory.layout import BOUNDARY, Region
from sennit.memory.pinning import pin
from sennit.memory.store import MICRO, USE, VERSION, HostStore
from sennit.memory.unlimited import Unlimited


@dataclass
class Slot:
    """A region on the device.

    Attributes:
        version: the one it was fetched in, until the word that came with the bytes has been read; or that of the last
            step, which leaves the word on the device as it was.
        word: reads that word; None once it has been read.
        coming: the copies that bring it, until they are used.
        dirty: stepped or written since it was last in the host.
    """

    region: Region
    flat: Tensor
    leaves: dict[str, nn.Parameter]
    version: int | None = None
    word: Callable[[], int] | None = None
    coming: list[Copy] = field(default_factory=list[Copy])
    dirty: bool = False


class CudaStore(Unlimited):
    """A worker's view of the host store on a GPU.

    Args:
        host: shared with all workers of this host.
        device: of this worker.
        wandering: groups that other workers use too; their changes go to the host at once.
        copies: makes what copies beside the computation, told whether the host's memory is pinned.
    """

    def __init__(
        self, host: HostStore, device: torch.device, wandering: frozenset[str], copies: Callable[[bool], Device]
    ) -> None:
        self.host, self.device, self.wandering = host, device, wandering
        self.unpinned = pin(host.memory, device)
        """Why the host's memory could not be pinned; empty if it is."""
        self.pinned = not self.unpinned
        self.copies = copies(self.pinned)
        self.slots: dict[tuple[str, int], Slot] = {}
        self.state: dict[str, tuple[Tensor, dict[str, Tensor]]] = {}
        self.steps: dict[tuple[str, int], GroupStep] = {}
        self.due = Due(Optimizer(host.optimizer_name, host.optimizer_arguments, device))
        self.newest: dict[str, int] = {}
        self.aside: dict[str, Tensor] = {}
        self.constants: dict[str, Tensor] = {}
        self.changed_state: set[str] = set()
        self.asked = self.fetched = 0

    # -- parameters

    def expect(self, groups: Iterable[str]) -> None:
        for group in groups:
            if (group, 0) not in self.slots and group not in self.wandering and group not in self.host.delayed:
                self._fetch(self._slot(group, 0), self.host.version(group))

    def holds(self, group: str, version: int) -> bool:
        slot = self.slots.get((group, self.host.slot_of(group, version)))
        return (slot is not None and slot.version == version) or self.host.holds(group, version)

    def version(self, group: str) -> int:
        return max(self.newest.get(group, -1), self.host.version(group))

    def acquire(self, group: str, version: int) -> dict[str, nn.Parameter]:
        """Leaves of the group in `version`, copied in if the slot holds another one."""
        slot = self._slot(group, self.host.slot_of(group, version))
        self.asked += 1
        if slot.version != version:
            self.fetched += 1
            if group in self.wandering:
                self._fetch_now(slot)
            else:
                self._fetch(slot, version)
        self._use(slot)
        return slot.leaves

    def seen(self, group: str, version: int) -> int:
        slot = self.slots[group, self.host.slot_of(group, version)]
        if slot.word is not None:
            slot.version, slot.word = slot.word(), None
        return -2 if slot.version is None else slot.version

    def _slot(self, group: str, number: int) -> Slot:
        known = self.slots.get((group, number))
        if known is None:
            region = self.host.slots[group][number]
            flat = self.copies.room(region.nbytes)
            trains = group not in self.host.frozen and self.host.group(group).kind == "parameters"
            leaves = {n: nn.Parameter(t, requires_grad=trains) for n, t in region.views_of(flat).items()}
            known = self.slots[group, number] = Slot(region, flat, leaves)
        return known

    def _fetch(self, slot: Slot, version: int) -> None:
        """Start bringing a version that the host has."""
        self._use(slot)
        read_before = [] if slot.version is None else [self.copies.mark()]
        copy = self.copies.fetch(slot.flat, slot.region.bytes(self.host.memory), read_before)
        slot.coming = [copy]
        slot.version, slot.word = version, self.copies.word(slot.flat, copy)

    def _use(self, slot: Slot) -> None:
        """All that is computed from now on sees the bytes that are coming."""
        while slot.coming:
            self.copies.use(slot.coming.pop())

    def _fetch_now(self, slot: Slot) -> None:
        """Bring what another worker may write again as soon as it may."""
        slot.flat.copy_(slot.region.bytes(self.host.memory), non_blocking=self.pinned)
        slot.version = int(slot.flat[:8].view(torch.int64).item())  # the word that came with the bytes

    # -- buffers

    def buffers(self, group: str) -> dict[str, Tensor]:
        slot = self._slot(group, 0)
        if slot.version is None or (group in self.wandering and slot.version != self._word(group)):
            self._fetch_now(slot)
            slot.version = self._word(group)
        return {name: leaf.detach() for name, leaf in slot.leaves.items()}

    def _word(self, group: str) -> int:
        """One number for a buffer group's word; other workers' writes change it."""
        words = self.host.words[group][0]
        return _number(int(words[VERSION]), int(words[MICRO]), int(words[USE]))

    def remember(self, group: str) -> None:
        if group in self.wandering:  # the host's bytes are the newest, and another worker may be next to remember
            self.host.remember_buffers(group)
            return
        self.buffers(group)
        self.aside[group] = self._slot(group, 0).flat.clone()
        self.host.before[group].words(self.host.memory)[:3] = self.host.words[group][0][:3]

    def move(self, group: str, word: tuple[int, int, int]) -> None:
        slot = self._slot(group, 0)
        slot.dirty = True
        if group in self.wandering:
            self._write_back(slot)
            torch.cuda.current_stream(self.device).synchronize()
            slot.dirty = False
        self.host.move(group, word)
        slot.version = _number(*word)  # whoever waited for this word may have written the next one already

    def constant(self, name: str) -> Tensor:
        known = self.constants.get(name)
        if known is None:
            known = self.constants[name] = self.host.constant_views[name].to(self.device)
        return known

    # -- the step

    def together(self) -> AbstractContextManager[None]:
        return self.due.together()

    def step(self, group: str, grads: dict[str, Tensor], lr: float, version: int) -> None:
        number = self.host.slot_of(group, version)
        slot = self._slot(group, number)
        grads = as_gradients(grads).on(self.device)  # those of `delayed:K` that waited at a cut are in host memory
        if group in self.host.delayed:
            self.acquire(group, version - 1)
            before = self._slot(group, self.host.slot_of(group, version - 1))
            slot.flat[BOUNDARY:].copy_(before.flat[BOUNDARY:])
        if group in self.wandering and group in self.state:  # another worker may have stepped it, in whichever slot
            self._fetch_state(group)
        step = self.steps.get((group, number))
        if step is None:
            step = self.steps[group, number] = GroupStep(
                self.due.optimizer, self.host.step_keys, slot.leaves, self._state(group), whole=True
            )
        self.due.step(step, grads, lr)
        slot.version, slot.word, slot.dirty = version, None, True
        self.changed_state.add(group)
        self.newest[group] = version
        if group in self.wandering:
            self.due.take()
            self._write_back(slot)
            self._write_state(group)
            torch.cuda.current_stream(self.device).synchronize()
            slot.dirty = False
            self.changed_state.discard(group)
            self.host.publish(group, version)

    def _state(self, group: str) -> dict[str, Tensor]:
        """Big state tensors on the device; counters and flags where they are, on the host."""
        if group not in self.state:
            region = self.host.state[group]
            flat = torch.empty(region.nbytes, dtype=torch.uint8, device=self.device)
            on_device = region.views_of(flat)
            on_host = self.host.state_views[group]
            small = (".step", ".stepped")
            views = {key: on_host[key] if key.endswith(small) else on_device[key] for key in on_host}
            self.state[group] = (flat, views)
            if self.host.has_stepped(group):
                self._fetch_state(group)
            else:
                flat.zero_()
        return self.state[group][1]

    def _fetch_state(self, group: str) -> None:
        self.state[group][0].copy_(self.host.state[group].bytes(self.host.memory), non_blocking=self.pinned)

    # -- for the trace

    def counters(self) -> dict[str, float]:
        """Since the last call: how often a group was in its slot when asked for or on its way there, for how long the
        device waited for those, and the most memory in use."""
        hits = 1.0 - self.fetched / self.asked if self.asked else 1.0
        most = float(torch.cuda.max_memory_allocated(self.device))
        self.asked = self.fetched = 0
        torch.cuda.reset_peak_memory_stats(self.device)
        waited = self.copies.stalled()
        return {"cache hits, part of reads": hits, "waited for layers, s": waited, "device memory, most bytes": most}

    # -- back to the host

    def flush(self) -> None:
        """Bring all changes to the host store and publish them there."""
        written: list[tuple[str, Slot]] = []
        for (group, _), slot in self.slots.items():
            if slot.dirty:
                self._write_back(slot)
                slot.dirty = False
                written.append((group, slot))
        for group in self.changed_state:
            self._write_state(group)
        for group, flat in self.aside.items():
            region = self.host.before[group]
            region.bytes(self.host.memory)[BOUNDARY:].copy_(flat[BOUNDARY:], non_blocking=self.pinned)
        self.changed_state.clear()
        self.aside.clear()
        torch.cuda.current_stream(self.device).synchronize()
        for group, slot in sorted(written, key=lambda item: item[1].version or 0):
            if self.host.group(group).kind == "parameters":
                assert slot.version is not None
                self.host.publish(group, slot.version)

    def _write_state(self, group: str) -> None:
        for key, tensor in self.state[group][1].items():
            home = self.host.state_views[group][key]
            if tensor is not home:  # counters and flags are where they belong
                home.copy_(tensor, non_blocking=self.pinned)

    def _write_back(self, slot: Slot) -> None:
        slot.region.bytes(self.host.memory)[BOUNDARY:].copy_(slot.flat[BOUNDARY:], non_blocking=self.pinned)


def _number(seq_id: int, micro_batch: int, use: int) -> int:
    """A buffer group's word as one number."""
    return (seq_id << 24) + (micro_batch << 8) + use
