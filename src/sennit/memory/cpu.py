"""`CpuStore`: slots of a CPU worker are the host store itself; nothing is copied."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sennit.memory.group_step import GroupStep, Optimizer
from sennit.memory.store import VERSION, HostStore
from sennit.memory.unlimited import Unlimited


class CpuStore(Unlimited):
    """A worker's view of the host store on the CPU.

    Args:
        host: shared with all workers of this host.
    """

    def __init__(self, host: HostStore) -> None:
        self.host = host
        self.leaves: dict[tuple[str, int], dict[str, nn.Parameter]] = {}
        self.steps: dict[tuple[str, int], GroupStep] = {}
        self.optimizer = Optimizer(host.optimizer_name, host.optimizer_arguments, torch.device("cpu"))

    def holds(self, group: str, version: int) -> bool:
        return self.host.holds(group, version)

    def version(self, group: str) -> int:
        return self.host.version(group)

    def acquire(self, group: str, version: int) -> dict[str, nn.Parameter]:
        """Leaves over the group's bytes; always the same objects for the same slot."""
        return self._leaves(group, self.host.slot_of(group, version))

    def _leaves(self, group: str, slot: int) -> dict[str, nn.Parameter]:
        known = self.leaves.get((group, slot))
        if known is None:
            trains = group not in self.host.frozen
            views = self.host.views[group][slot]
            known = {name: nn.Parameter(view, requires_grad=trains) for name, view in views.items()}
            self.leaves[group, slot] = known
        return known

    def seen(self, group: str, version: int) -> int:
        return int(self.host.words[group][self.host.slot_of(group, version)][VERSION])

    def buffers(self, group: str) -> dict[str, Tensor]:
        return self.host.views[group][0]

    def remember(self, group: str) -> None:
        self.host.remember_buffers(group)

    def move(self, group: str, word: tuple[int, int, int]) -> None:
        self.host.move(group, word)

    def constant(self, name: str) -> Tensor:
        return self.host.constant_views[name]

    def step(self, group: str, grads: dict[str, Tensor], lr: float, version: int) -> None:
        slot = self.host.slot_of(group, version)
        if group in self.host.delayed:
            before = self.host.views[group][self.host.slot_of(group, version - 1)]
            for name, tensor in self.host.views[group][slot].items():
                tensor.copy_(before[name])
        step = self.steps.get((group, slot))
        if step is None:
            step = self.steps[group, slot] = GroupStep(
                self.optimizer, self.host.step_keys, self._leaves(group, slot), self.host.state_views[group]
            )
        step(grads, lr)
        self.host.publish(group, version)

    def counters(self) -> dict[str, float]:
        """Nothing is cached."""
        return {}

    def flush(self) -> None:
        """Nothing waits to be written: the slots are the store."""
