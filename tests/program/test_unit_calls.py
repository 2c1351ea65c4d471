"""Calls of units: what they write, and when a call is one that has been seen."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from program_spaces import same_as_plain
from torch import Tensor, nn

import sennit as sn


def test_writes_to_buffers_are_seen() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))
            self.register_buffer("fixed", torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            return x - self.fixed

    class Mover(Counter):
        def forward(self, x: Tensor) -> Tensor:
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
            return x - self.mean

    class Net(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            norms = [nn.BatchNorm1d(4), nn.BatchNorm1d(4, track_running_stats=False)]
            self.choice = sn.LayerChoice([*norms, Counter(), Mover()])

        def forward(self, x: Tensor) -> Tensor:
            return self.choice(x)

    space, x = Net(), torch.randn(6, 4)
    written = [space.program({"choice": i}, x).steps[0].written for i in range(4)]
    assert written[0] == ("choice.0.running_mean", "choice.0.running_var", "choice.0.num_batches_tracked")
    assert written[1:3] == [(), ()] and "choice.3.mean" in written[3]
    same_as_plain(space, {"choice": 3}, x.requires_grad_())


def test_numbers_of_another_type_are_other_calls() -> None:
    """2 == 2.0 == True, but the results have other dtypes."""

    class Types(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.choice = sn.LayerChoice([nn.Embedding(9, 3), nn.Embedding(9, 3)])

        def forward(self, x: Tensor) -> Tensor:
            return self.choice(x * 2).sum() + (x * 2.0).mean() + F.one_hot(x * 2, 9).float().mean()

    same_as_plain(Types(), {"choice": 0}, torch.tensor([1, 2, 3]))
