"""`VirtualStore`: versions without bytes, for virtual devices."""

from __future__ import annotations

from torch import Tensor, nn

from sennit.memory.cpu import CpuStore


class VirtualStore(CpuStore):
    """A step publishes its version and changes nothing."""

    def acquire(self, group: str, version: int) -> dict[str, nn.Parameter]:
        return {}

    def remember(self, group: str) -> None:
        """Nothing could be taken back."""

    def step(self, group: str, grads: dict[str, Tensor], lr: float, version: int) -> None:
        self.host.publish(group, version)
