"""Broken schedulers, to show that hashes and checker catch them."""

from __future__ import annotations

from torch import Tensor, nn

from sennit.memory.cpu import CpuStore
from sennit.runtime.worker import Worker


class FinishedAtThisStage:
    """The published rule (NASPipe, Algorithm 2): a subnet may go forward once every earlier conflicting subnet
    has finished its backward *at this stage*, whichever stage held the layer for the earlier one."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def open(self, group: str, seq_id: int, version: int) -> bool:
        earlier = self.worker.subnets.get(version)
        return earlier is None or not earlier.left


class AlwaysOpen:
    """No rule at all."""

    def __init__(self, worker: Worker) -> None:
        pass

    def open(self, group: str, seq_id: int, version: int) -> bool:
        return True


class Copies(CpuStore):
    """Slots that are copies. On shared memory autograd itself notices weights that change under a graph; with
    copies, as on a GPU, nothing but versions and hashes can."""

    def acquire(self, group: str, version: int) -> dict[str, Tensor]:
        leaves = super().acquire(group, version)
        return {name: nn.Parameter(t.detach().clone(), requires_grad=t.requires_grad) for name, t in leaves.items()}
