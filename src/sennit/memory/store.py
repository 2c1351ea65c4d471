"""`HostStore`: the supernet, once per host, in shared memory that every worker of the host sees.

The memory is anonymous and shared by inheritance, so it has no name that a killed process could leave behind.
A worker reads a group where it lies, runs the optimizer step there and publishes the new version by writing the
group's version word last. Under `delayed:K` an always-shared group has K slots, version v in slot v mod K.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sennit.memory import pages
from sennit.memory.layout import Layout, Region
from sennit.program.groups import Group, Groups
from sennit.space.draw_parts import MANY, AtOnce
from sennit.space.names import non_persistent, unique_tensors
from sennit.supernet.optim import state_keys
from sennit.supernet.sync import Shared

VERSION, MICRO, USE = 0, 1, 2
"""Words of a header: seq id of the last subnet included; for buffers also micro-batch and use. -1 at first."""


class HostStore:
    """All state of a supernet in one shared block.

    Args:
        skeleton: the space without memory.
        groups: its groups.
        always: names of always-shared groups, for the slots of `delayed:K`.
        optimizer, arguments: as in the recipe.
        whole: all of it will be in the host's memory, as pinning wants; else what is not used costs none.
    """

    def __init__(
        self, skeleton: nn.Module, groups: Groups, always: frozenset[str], shared: Shared,
        optimizer: str, arguments: Mapping[str, Any], whole: bool = False,
    ) -> None:  # fmt: skip
        self.groups, self.shared = groups, shared
        self.optimizer_name, self.optimizer_arguments = optimizer, dict(arguments)
        self.delayed = {g for g in always if shared.kind == "delayed" and groups.by_name[g].kind == "parameters"}
        self.frozen = {g for g in always if shared.kind == "frozen"}
        self.hidden = non_persistent(skeleton)
        tensors = unique_tensors(skeleton)
        self.keys = state_keys(optimizer, arguments)
        self.counts_steps = optimizer != "sgd"
        layout = Layout()
        self.slots: dict[str, list[Region]] = {}
        self.state: dict[str, Region] = {}
        self.waiting: dict[str, list[Region]] = {}
        self.before: dict[str, Region] = {}
        scalar = torch.empty((), dtype=torch.float32, device="meta")
        flag = torch.empty((), dtype=torch.uint8, device="meta")
        for group in groups.all:
            members = [(name, tensors[name]) for name in group.names]
            copies = shared.lag if group.name in self.delayed else 1
            self.slots[group.name] = [layout.region(members) for _ in range(copies)]
            if group.kind == "buffers":
                self.before[group.name] = layout.region(members)
                continue
            if group.name in self.frozen:
                continue
            # all of a key together, lying like the parameters: see `Whole`
            entries = [(f"{name}.{key}", tensors[name]) for key in self.keys for name in group.names]
            entries += [(f"{name}.step", scalar) for name in group.names if self.counts_steps]
            entries += [(f"{name}.stepped", flag) for name in group.names]
            self.state[group.name] = layout.region(entries)
            if group.name in self.delayed:
                flags = [(f"{name}.given", flag) for name in group.names]
                self.waiting[group.name] = [layout.region([*members, *flags]) for _ in range(shared.lag)]
        held = {name for group in groups.all for name in group.names}
        self.constants = layout.region([(n, t) for n, t in tensors.items() if n not in held])
        asked = layout.region([("asked", torch.empty(len(self.coming_and_going), dtype=torch.uint8, device="meta"))])
        self.memory = pages.shared(layout.size, whole)
        self.views: dict[str, list[dict[str, Tensor]]] = {
            name: [region.views(self.memory) for region in regions] for name, regions in self.slots.items()
        }
        self.state_views = {name: region.views(self.memory) for name, region in self.state.items()}
        self.waiting_views = {name: [r.views(self.memory) for r in rs] for name, rs in self.waiting.items()}
        self.constant_views = self.constants.views(self.memory)
        self.asked: np.ndarray = asked.views(self.memory)["asked"].numpy()
        """Of each group that comes and goes: whether somebody wants every version here at once. See `Asked`."""
        self.words: dict[str, list[np.ndarray]] = {
            name: [region.words(self.memory) for region in regions] for name, regions in self.slots.items()
        }
        self.waiting_words = {name: [r.words(self.memory) for r in rs] for name, rs in self.waiting.items()}
        for words in [*self.words.values(), *self.waiting_words.values()]:
            for word in words:
                word[:3] = -1
        self.latest = {name: self.words[name][0][3:4] for name in self.delayed}
        for word in self.latest.values():
            word[0] = -1

    @property
    def step_keys(self) -> tuple[str, ...]:
        """Keys of the state that a step reads and writes."""
        return (*self.keys, "step") if self.counts_steps else self.keys

    def populate(self, at_once: AtOnce, processes: int) -> None:
        """Have the system give all pages, by several processes: pinning needs them, and would take one after the other.

        Args:
            at_once: calls functions in processes that share this memory.
        """
        firsts = np.frombuffer(self.memory, dtype=np.uint8)[:: mmap.PAGESIZE]
        if len(self.memory) >= MANY:
            at_once([partial(_touch, part) for part in np.array_split(firsts, processes)])

    # -- where things are

    def comes_and_goes(self, group: str) -> bool:
        """Whether a device with a budget may give a group up: parameters, but for the slots of `delayed:K`, which are
        in use all the time."""
        return group in self.coming_and_going

    @cached_property
    def coming_and_going(self) -> dict[str, int]:
        """Those groups, and bytes of each one's tensors with its optimizer state."""
        groups = (group.name for group in self.groups.all if group.kind == "parameters")
        return {group: self.size(group) for group in groups if group not in self.delayed}

    def size(self, group: str) -> int:
        """Bytes of a group's tensors with its optimizer state."""
        state = self.state.get(group)
        return self.slots[group][0].nbytes + (state.nbytes if state is not None else 0)

    def spare(self) -> int:
        """Bytes beside what subnets need, so that any group that comes and goes can come in for its step."""
        return max(self.coming_and_going.values(), default=0)

    def slot_of(self, group: str, version: int) -> int:
        return version % self.shared.lag if group in self.delayed else 0

    def version(self, group: str) -> int:
        """The newest version of a parameter group."""
        return int(self.latest[group][0]) if group in self.delayed else int(self.words[group][0][VERSION])

    def holds(self, group: str, version: int) -> bool:
        """Whether `version` of a parameter group can be read now."""
        return int(self.words[group][self.slot_of(group, version)][VERSION]) == version

    def has_stepped(self, group: str) -> bool:
        """Whether there is optimizer state of a group; what has never stepped has none to read."""
        views = self.state_views[group]
        return any(bool(views[f"{name}.stepped"]) for name in self.group(group).names)

    def home(self, name: str) -> Tensor:
        """Memory of a tensor at version -1, for `initialise`."""
        group = self.groups.of_name.get(name)
        if group is None:
            return self.constant_views[name]
        return self.views[group.name][self.slot_of(group.name, -1)][name]

    def current(self, group: str) -> dict[str, Tensor]:
        """Tensors of the newest version."""
        return self.views[group][self.slot_of(group, self.version(group)) if group in self.delayed else 0]

    # -- the step

    def publish(self, group: str, version: int) -> None:
        """Make `version` visible: the word is written after the bytes."""
        self.words[group][self.slot_of(group, version)][VERSION] = version
        if group in self.delayed:
            self.latest[group][0] = version

    def keep_gradient(self, group: str, seq_id: int, grads: Mapping[str, Tensor | None]) -> None:
        """Let the (clipped) gradient of `seq_id` wait in shared memory."""
        k = seq_id % self.shared.lag
        views = self.waiting_views[group][k]
        for name in self.groups.by_name[group].names:
            grad = grads.get(name)
            views[f"{name}.given"].fill_(grad is not None)
            if grad is not None:
                views[name].copy_(grad)
        self.waiting_words[group][k][VERSION] = seq_id

    def kept_gradient(self, group: str, seq_id: int) -> dict[str, Tensor] | None:
        """The gradient of `seq_id` that waits, or None if it is not there."""
        k = seq_id % self.shared.lag
        if int(self.waiting_words[group][k][VERSION]) != seq_id:
            return None
        views = self.waiting_views[group][k]
        return {n: views[n] for n in self.groups.by_name[group].names if bool(views[f"{n}.given"])}

    def move(self, group: str, word: tuple[int, int, int]) -> None:
        """Make it known that a forward has written a buffer group: (seq id, micro-batch, use).

        The three numbers are stored one by one, the last one last, and only those that change: so what stands there in
        between is a word that has passed, and nothing is stored after the new one stands. Whoever waits for that may go
        on at once and store the next word, so what changes is looked up before the first store.
        """
        words = self.words[group][0]
        changes = [(place, word[place]) for place in (USE, MICRO, VERSION) if words[place] != word[place]]
        for place, number in changes:
            words[place] = number

    # -- whole state

    def weights(self) -> dict[str, Tensor]:
        """Newest version of every tensor by canonical name, buffers of all kinds included."""
        found = dict(self.constant_views)
        for group in self.groups.all:
            found.update(self.current(group.name))
        return dict(sorted(found.items()))

    def hashed_weights(self) -> dict[str, Tensor]:
        return {name: t for name, t in self.weights().items() if name not in self.hidden}

    def optimizer_state(self) -> dict[str, Tensor]:
        """`parameter.key` to tensor, for parameters that have stepped, and gradients that wait."""
        found: dict[str, Tensor] = {}
        keys = self.step_keys
        for group, views in self.state_views.items():
            for name in self.groups.by_name[group].names:
                if bool(views[f"{name}.stepped"]):
                    found.update({f"{name}.{key}": views[f"{name}.{key}"] for key in keys})
        for group, words in self.waiting_words.items():
            newest = self.version(group)
            for word in words:
                seq_id = int(word[VERSION])
                if seq_id > newest:
                    waiting = self.kept_gradient(group, seq_id) or {}
                    found.update({f"{name}.pending.{seq_id}": grad for name, grad in waiting.items()})
        return found

    def versions(self) -> dict[str, list[int]]:
        """Words of every group, for a checkpoint."""
        found: dict[str, list[int]] = {}
        for group in self.groups.all:
            if group.name in self.delayed:
                newest = self.version(group.name)
                kept = [int(w[VERSION]) for w in self.waiting_words[group.name] if int(w[VERSION]) > newest]
                found[group.name] = [newest, *sorted(kept)]
            else:
                found[group.name] = [int(n) for n in self.words[group.name][0][:3]]
        return found

    def restore(
        self, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], versions: Mapping[str, list[int]]
    ) -> None:
        """Put a checkpoint's state in place."""
        for name, tensor in self.constant_views.items():
            tensor.copy_(weights[name])
        for group in self.groups.all:
            words = versions[group.name]
            newest = words[0]
            if group.name in self.delayed:
                for word in self.words[group.name]:
                    word[:3] = -2  # no version there
                self.words[group.name][self.slot_of(group.name, newest)][VERSION] = newest
                self.latest[group.name][0] = newest
                for seq_id in words[1:]:
                    grads = {name: optimizer.get(f"{name}.pending.{seq_id}") for name in group.names}
                    self.keep_gradient(group.name, seq_id, grads)
            else:
                self.words[group.name][0][:3] = words
            for name, tensor in self.current(group.name).items():
                tensor.copy_(weights[name])
        for group, views in self.state_views.items():
            for name in self.groups.by_name[group].names:
                keys = [key for key in (*self.keys, "step") if f"{name}.{key}" in optimizer]
                stepped = bool(keys)
                views[f"{name}.stepped"].fill_(stepped)
                for key in keys:
                    views[f"{name}.{key}"].copy_(optimizer[f"{name}.{key}"])

    # -- buffers before a subnet, to take its forward back

    def remember_buffers(self, group: str) -> None:
        """Copy a buffer group aside, before a new subnet writes it."""
        self.before[group].bytes(self.memory).copy_(self.slots[group][0].bytes(self.memory))

    def take_back(self, group: str, seq_id: int) -> bool:
        """Undo what subnet `seq_id` wrote into a buffer group. False if that is no longer possible."""
        word = self.words[group][0]
        if int(word[VERSION]) < seq_id:
            return True
        if int(word[VERSION]) > seq_id or int(self.before[group].words(self.memory)[VERSION]) >= seq_id:
            return False
        self.slots[group][0].bytes(self.memory).copy_(self.before[group].bytes(self.memory))
        return True

    def group(self, name: str) -> Group:
        return self.groups.by_name[name]


def _touch(firsts: np.ndarray) -> None:
    """Read the first byte of each page."""
    firsts.max(initial=0)
