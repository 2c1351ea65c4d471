"""Canonical names: one for each storage, the first in sorted order."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import sennit as sn
from sennit.errors import SpaceError
from sennit.space.inline import loose_tensors, units
from sennit.space.names import canonical_names, non_persistent, unique_tensors


class Tied(sn.ModelSpace):
    def __init__(self) -> None:
        super().__init__()
        self.z = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.z.weight
        self.norm = nn.BatchNorm1d(3)
        self.again = self.norm
        self.choice = sn.LayerChoice([nn.Sequential(nn.Linear(3, 3), nn.ReLU()), nn.Identity()])
        self.register_buffer("scratch", torch.zeros(2), persistent=False)
        self.gain = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.choice(self.again(self.norm(self.z(x)))) * self.gain)


def test_one_name_a_storage() -> None:
    assert list(unique_tensors(Tied())) == [
        "again.bias", "again.num_batches_tracked", "again.running_mean", "again.running_var", "again.weight",
        "choice.0.0.bias", "choice.0.0.weight", "gain", "head.weight", "scratch",
    ]  # fmt: skip


def test_copies_have_the_same_names() -> None:
    one, two = Tied(), copy.deepcopy(Tied())
    assert list(canonical_names(one).values()) == list(canonical_names(two).values())


def test_what_a_state_dict_leaves_out() -> None:
    assert non_persistent(Tied()) == {"scratch"}


def test_two_tensors_in_one_memory_are_refused() -> None:
    net = Tied()
    net.gain = nn.Parameter(net.z.weight.detach()[0])
    with pytest.raises(SpaceError, match=r"'gain' and 'head.weight' share memory but are two tensors; tie them"):
        canonical_names(net)


def test_units_and_loose_tensors() -> None:
    net = Tied()
    assert list(units(net)) == ["z", "head", "norm", "choice.0", "choice.1"]
    assert sorted(path for path, _, _ in loose_tensors(net)) == ["gain", "scratch"]
