"""`SlotStore`: a worker's view of the host store through the slots of a device with a budget.

    acquire ── resident in that version? ──yes──▶ views
                        │ no
                        ▼
               make room: who may leave is written back if it is dirty ──▶ fetch ──▶ views

A slot holds a group's tensors and its optimizer state. The step runs in the slot. A group that other workers use too
(`wandering`) is written back at once, any other when it leaves, or at a cut; its version is published when the bytes
are there. Of a wandering group that one worker alone steps, that worker keeps the state and the others have none
(`Stepped`); if they get the weights from its device, it is written back at once only for those that ask (`Passed`).
Buffers, constants and the slots of `delayed:K` are in use all the time: a store without a budget keeps them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

from sennit.errors import RunError
from sennit.memory.cpu import CpuStore
from sennit.memory.cuda import CudaStore
from sennit.memory.device import Device
from sennit.memory.due import Due
from sennit.memory.eviction import Eviction, Key, LatestNextUse
from sennit.memory.gradients import as_gradients
from sennit.memory.group_step import GroupStep, Optimizer
from sennit.memory.passed import Passed
from sennit.memory.residents import Residents
from sennit.memory.slot import SMALL, Slot
from sennit.memory.stepped import ANYWHERE, Made, Stepped
from sennit.memory.tally import Tally

NAP_S = 0.0001
"""Between two looks at what another worker brings to the host, seconds."""


class SlotStore:
    """Slots of one worker.

    Args:
        kept: has what stays; knows the host store, which all workers of this host share.
        device: where slots are.
        wandering: groups that other workers use too.
        budget: bytes for groups that come and go.
        eviction: who leaves first.
        stepped: who steps wandering groups.
    """

    limited = True

    def __init__(
        self, kept: CpuStore | CudaStore, device: Device, wandering: frozenset[str], budget: int, eviction: Eviction,
        stepped: Stepped = ANYWHERE,
    ) -> None:  # fmt: skip
        self.kept, self.host, self.device, self.wandering = kept, kept.host, device, wandering
        self.stepped = stepped
        self.passed = Passed(self.host, stepped)
        optimizer = Optimizer(self.host.optimizer_name, self.host.optimizer_arguments, device.torch_device)
        self.due = Due(optimizer, self._taken)
        self.residents = Residents(self.host, device, budget, eviction, self.passed, self.due.take)
        self.sizes, self.spare, self.most = self.residents.sizes, self.residents.spare, budget
        self.slots, self.cache, self.leaving = self.residents.slots, self.residents.cache, self.residents.leaving
        self.listed = False
        """Whether forwards come by a list."""
        self.newest: dict[str, int] = {}
        self.fresh: list[tuple[str, int, Slot]] = []
        """Groups whose step is due, and the versions that it makes."""
        self.total = Tally()
        """Up to the last `counters()`."""
        self.buffers, self.remember, self.move = kept.buffers, kept.remember, kept.move
        self.constant = kept.constant

    # -- what is known of tasks

    def announce(self, ring: Callable[[str], None]) -> None:
        self.leaving.ring = self.passed.ring = ring

    def foresee(self, next_use: Callable[[Key], float]) -> None:
        if isinstance(self.cache.eviction, LatestNextUse):
            self.cache.eviction.next_use = next_use

    def expect(self, groups: Iterable[str]) -> None:
        """A subnet has come in that reads these groups on this worker.

        Raises:
            RunError: they do not fit.
        """
        share = sum(self.sizes.get(group, 0) for group in groups)
        if share + self.spare > self.most:
            raise RunError(
                f"{too_little('that comes next, on one worker,', share, self.spare, self.most)}. Later subnets may "
                "need more; what has been trained is the same under another budget"
            )
        self.cache.expect(share + self.spare)
        self.residents.limit(max(self.cache.budget, self.cache.room))  # it may be less than it was: see `relieve`

    def ready(self, group: str, version: int) -> None:
        """A forward that reads a group has become ready: is it here?"""
        if group not in self.sizes:
            return
        slot = self.slots.get((group, 0))
        self.residents.tally.reads += 1
        if slot is not None and slot.version == version:
            self.residents.tally.hits += all(self.device.done(copy) for copy in slot.coming)

    def may_run(self, groups: Iterable[str], seq_id: int, lowest: int | None) -> bool:
        sizes = {(group, 0): self.sizes[group] for group in groups if group in self.sizes}
        self.listed = lowest is None
        return self.cache.fits(sizes, self.spare) if lowest is None else self.cache.may_pin(seq_id, sizes, lowest)

    def pin(self, group: str, seq_id: int) -> None:
        if group in self.sizes:
            self.cache.pin((group, 0), seq_id)

    def unpin(self, groups: Iterable[str], seq_id: int) -> None:
        held = [group for group in groups if group in self.sizes]
        mark = [self.device.mark()] if held else []
        for group in held:
            self.cache.unpin((group, 0), seq_id)
            self.slots[group, 0].used = mark

    # -- parameters

    def holds(self, group: str, version: int) -> bool:
        if group not in self.sizes:
            return self.kept.holds(group, version)
        slot = self.slots.get((group, 0))
        if slot is not None and slot.version == version:
            return True
        if self.passed.comes(group, version):
            return False
        return self.leaving.version(group) == version or self.host.holds(group, version)

    def version(self, group: str) -> int:
        if group not in self.sizes:
            return self.kept.version(group)
        return max(self.newest.get(group, -1), self.host.version(group))

    def here(self, group: str) -> bool:
        return group not in self.sizes or (group, 0) in self.slots

    def bring(self, group: str, version: int) -> None:
        """Start fetching a group that a forward which begins now reads, if no slot holds it."""
        if group in self.sizes:
            slot = self._brought(group, version)
            self.residents.tally.right += slot.ahead
            slot.ahead = False

    def acquire(self, group: str, version: int) -> dict[str, nn.Parameter]:
        """Leaves of the group in `version`, fetched if no slot holds it."""
        if group not in self.sizes:
            return self.kept.acquire(group, version)
        return self._resident(group, version).leaves

    def seen(self, group: str, version: int) -> int:
        if group not in self.sizes:
            return self.kept.seen(group, version)
        slot = self.slots[group, 0]
        if slot.word is not None:
            slot.version, slot.word = slot.word(), None
        return -2 if slot.version is None else slot.version

    def ahead(self, group: str, version: int) -> bool:
        """Start fetching a group that will be read; False if that must wait: no room, or it is not there."""
        key = group, 0
        slot = self.slots.get(key)
        if slot is not None and slot.version == version:
            return True  # most often, and nothing else is looked at then
        if group not in self.sizes or not self.host.holds(group, version) or group in self.leaving:
            return False
        if slot is not None:  # another worker has stepped since
            if slot.dirty or self.cache.entries[key].pins:
                return False
            self.residents.fetch(slot, group)
        else:
            gone = self.cache.leaving(self.sizes[group])
            if gone is None or any(self.cache.eviction.sooner(other, key) for other in gone):
                return False
            slot = self.residents.load(group, gone)
        self.residents.tally.ahead += 1
        slot.ahead = True
        return True

    def departed(self) -> int:
        return self.cache.dropped

    def _resident(self, group: str, version: int) -> Slot:
        """The slot that holds a version, with all that is computed from now on seeing its bytes."""
        slot = self._brought(group, version)
        if slot.coming:
            began = time.perf_counter()
            for copy in slot.coming:
                self.device.use(copy)
            slot.coming.clear()
            self.residents.tally.stall_s += time.perf_counter() - began
        return slot

    def _brought(self, group: str, version: int) -> Slot:
        """The slot that holds a version, or will when what is coming has come."""
        slot = self.slots.get((group, 0))
        if slot is not None and slot.version == version:
            return slot
        began = time.perf_counter()
        self._await(group, version)
        if slot is None:
            gone = self.cache.leaving(self.sizes[group])
            assert gone is not None, f"no room for {group}: {self.cache.used} of {self.cache.budget} bytes are pinned"
            slot = self.residents.load(group, gone)
        else:
            self.residents.fetch(slot, group)
        self.residents.tally.stall_s += time.perf_counter() - began
        return slot

    def _await(self, group: str, version: int) -> None:
        """Wait until the host has a version that came from another device, for which a forward has become ready, and
        whose slot was given up since. It is on its way there. Who brings it may be waiting here, too, so what is on its
        way from here is published meanwhile."""
        while group in self.stepped.elsewhere and self.host.version(group) < version:
            self.poll()
            time.sleep(NAP_S)

    def relieve(self) -> None:
        """The device is full: whatever may leave does. From now on there is room for what is pinned and for one subnet
        more, so that the oldest can always go on; under a list, which needs what it needs, the room stays as it is."""
        self.residents.evict_all()
        if not self.listed:
            self.residents.limit(min(self.cache.budget, self.cache.used + self.cache.room))

    # -- the step

    @contextmanager
    def together(self) -> Iterator[None]:
        """Around steps that may be taken at once."""
        with self.due.together(), self.kept.together():
            yield

    def step(self, group: str, grads: dict[str, Tensor], lr: float, version: int) -> None:
        """The optimizer step, in the slot."""
        if group not in self.sizes:
            self.kept.step(group, grads, lr, version)
            return
        self.leaving.settle(group)  # the slot may still be on its way to the host as it was before
        slot = self._resident(group, self.version(group))
        if slot.step is None:
            slot.step = GroupStep(
                self.due.optimizer, self.host.step_keys, slot.leaves, self._state(group, slot),
                whole=self.device.torch_device.type == "cuda",
            )  # fmt: skip
        here = as_gradients(grads).on(self.device.torch_device)
        self.due.before(slot.step, lr)
        slot.version, slot.word, slot.dirty = version, None, True
        self.newest[group] = version
        self.fresh.append((group, version, slot))
        self.due.step(slot.step, here, lr)

    def _taken(self) -> None:
        """Steps have been taken: what other workers read goes to them."""
        fresh, self.fresh = self.fresh, []
        if self.passed.to is not None:  # first: others wait for it
            passed = [made for made in fresh if made[0] in self.stepped.here]
            self.passed.to([(group, version, slot.numbers) for group, version, slot in passed])
        mark = self.device.mark()  # what is passed on has been read as well
        for _, _, slot in fresh:
            slot.used = [mark]
        back = [made for made in fresh if made[0] in self.wandering and not self.passed.stays(made[0])]
        self.leaving.bring(back, self.stepped.here)

    # -- from device to device

    def pass_on(self, to: Callable[[Sequence[Made]], None], start: int) -> None:
        self.passed.to, self.passed.start = to, start

    def take(self, made: Iterable[Made]) -> None:
        self.residents.take(made)

    def _state(self, group: str, slot: Slot) -> dict[str, Tensor]:
        """Big tensors in the slot; counters and flags where they are, on the host."""
        assert slot.state is not None and slot.state_region is not None
        on_host, in_slot = self.host.state_views[group], slot.state_region.views_of(slot.state)
        return {key: on_host[key] if key.endswith(SMALL) else in_slot[key] for key in on_host}

    # -- back to the host

    def poll(self) -> None:
        for group in self.passed.wanted():
            slot = self.slots.get((group, 0))
            if slot is not None and slot.dirty and not any(slot is made for *_, made in self.fresh):
                self.leaving.bring([(group, slot.known, slot)], self.stepped.here)
        self.leaving.poll()

    def expecting(self) -> bool:
        return bool(self.leaving)

    def flush(self) -> None:
        """Bring all changes to the host store and publish them there, in the order of versions."""
        self.kept.flush()
        self.residents.flush()

    # -- for the trace

    def counters(self) -> dict[str, float]:
        """Since the last call."""
        taken = self.residents.counted()
        self.total.add(taken)
        held = float(sum(slot.region.nbytes for slot in self.slots.values()))
        return {**self.kept.counters(), **taken.counters(), "parameters in slots, bytes": held}

    def counted(self) -> Tally:
        """Up to the last `counters()`."""
        return self.total


def too_little(where: str, share: int, spare: int, budget: int) -> str:
    """What to say of a budget that does not hold one subnet."""
    needed = share + spare
    return (
        f"--budget {budget / 2**30:.4g} ({budget:,} bytes) is too little: the layers of one subnet {where} take up to "
        f"{share:,} bytes with their optimizer state, and a step needs {spare:,} beside them. Raise it to at least "
        f"--budget {-(-needed * 10**6 // 2**30) / 10**6:.6f} ({needed:,} bytes), or use more workers"
    )
