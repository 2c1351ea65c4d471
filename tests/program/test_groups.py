"""Groups: what is versioned as one, by storage."""

from __future__ import annotations

import pytest
import torch
from program_spaces import ENCODER_DECODER_ARCH, EncoderDecoder, Slots
from torch import Tensor, nn

import sennit as sn
from sennit.errors import SpaceError
from sennit.program.groups import Group, Groups, refuse_reads_elsewhere


def groups_of(space: sn.ModelSpace, *args: Tensor) -> Groups:
    for arch in space.structure.covering():
        space.program(arch, *args)
    recordings = space.recordings
    return Groups(recordings.skeleton, [n for names in recordings.recorder.written.values() for n in names])


SOURCE, TARGET = torch.randint(0, 11, (4, 7)), torch.randint(0, 11, (4, 5))


def test_a_tied_parameter_is_a_group_of_its_own() -> None:
    space = EncoderDecoder()
    groups = groups_of(space, SOURCE, TARGET)
    assert groups.by_name["embed.weight"] == Group("embed.weight", "parameters", ("embed.weight",))
    assert groups.by_name["encoder.0.1"].names == ("encoder.0.1.0.bias", "encoder.0.1.0.weight")
    assert groups.by_name["scale"].names == ("scale",)
    assert "position" not in groups.of_name  # a buffer that nobody writes
    assert [group.name for group in groups.all] == sorted(group.name for group in groups.all)
    read, moved = groups.of_program(space.program(ENCODER_DECODER_ARCH, SOURCE, TARGET))
    assert read == {"embed.weight", "scale", "encoder.0.0", "encoder.1.1", "cross.other"} and moved == set()


def test_statistics_are_a_second_group() -> None:
    space = Slots()
    groups = groups_of(space, torch.randn(5, 4, 6))
    assert groups.by_name["norm"].names == ("norm.bias", "norm.weight")
    assert groups.by_name["norm#buffers"] == Group(
        "norm#buffers", "buffers", ("norm.num_batches_tracked", "norm.running_mean", "norm.running_var")
    )
    uses = [groups.of_step(step) for step in space.program({"choice": 1}, torch.randn(5, 4, 6)).steps]
    assert uses.count((("norm",), ("norm#buffers",))) == 2 and uses.count((("conv",), ())) == 2


def test_every_trained_parameter_and_moving_buffer_is_in_one_group() -> None:
    for space, args in ((EncoderDecoder(), (SOURCE, TARGET)), (Slots(), (torch.randn(5, 4, 6),))):
        groups = groups_of(space, *args)
        held = [name for group in groups.all for name in group.names]
        assert len(held) == len(set(held)) and set(held) == set(groups.of_name)
        named = {name for name, _ in space.named_parameters()}
        assert {n for g in groups.all if g.kind == "parameters" for n in g.names} == named


def test_parameters_that_do_not_train_are_in_no_group() -> None:
    class Fixed(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(3, 3)
            self.line.weight.requires_grad_(False)
            self.choice = sn.LayerChoice([nn.Linear(3, 3), nn.Identity()])

        def forward(self, x: Tensor) -> Tensor:
            return self.choice(self.line(x))

    groups = groups_of(Fixed(), torch.randn(2, 3))
    assert groups.by_name["line"].names == ("line.bias",)


def test_half_a_module_tied_makes_two_groups() -> None:
    class Half(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
            self.b.weight = self.a.weight
            self.choice = sn.LayerChoice([nn.Linear(3, 3), nn.Identity()])

        def forward(self, x: Tensor) -> Tensor:
            return self.choice(self.b(self.a(x)))

    space = Half()
    groups = groups_of(space, torch.randn(2, 3))
    assert {g.name: g.names for g in groups.all} == {
        "a": ("a.bias",),
        "a.weight": ("a.weight",),
        "b": ("b.bias",),
        "choice.0": ("choice.0.bias", "choice.0.weight"),
    }
    step = space.program({"choice": 1}, torch.randn(2, 3)).steps[1]
    assert set(groups.of_step(step)[0]) == {"a.weight", "b"}


class Inlined(sn.ModelSpace):
    """Looks at the buffers of a norm, outside of any module that has it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.choice = nn.BatchNorm1d(4), sn.LayerChoice([nn.Linear(4, 4), nn.Tanh()])

    def forward(self, x: Tensor) -> Tensor:
        return self.choice(self.norm(x)) - self.norm.running_mean


def test_a_buffer_belongs_to_who_writes_it() -> None:
    space, x = Inlined(), torch.randn(5, 4)
    with pytest.raises(SpaceError, match=r"(?s)reads buffer 'norm.running_mean', which step 'norm' writes"):
        refuse_reads_elsewhere([space.program(arch, x) for arch in space.structure.covering()])
