"""Recording: a program does what the model's own forward does."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from program_spaces import (
    ENCODER_DECODER_ARCH,
    EncoderDecoder,
    RandomNet,
    Slots,
    Strides,
    plainly,
    same_as_plain,
    tensors,
)
from torch import Tensor, nn

import sennit as sn
from sennit.errors import ArchError
from sennit.program.recordings import Recordings, spec_of
from sennit.program.step import Program

SOURCE, TARGET = torch.randint(0, 11, (4, 7)), torch.randint(0, 11, (4, 5))


def names(program: Program) -> list[str]:
    return [step.name for step in program.steps]


@pytest.mark.parametrize("train", [True, False])
def test_encoder_decoder_equals_plain_python(train: bool) -> None:
    space = EncoderDecoder()
    for arch in space.structure.covering():
        same_as_plain(space, arch, SOURCE, TARGET, train=train)


@pytest.mark.parametrize("train", [True, False])
def test_a_module_in_two_slots_and_strides_equal_plain_python(train: bool) -> None:
    for arch in ({"choice": 0}, {"choice": 1}):
        same_as_plain(Slots(), arch, torch.randn(5, 4, 6), train=train)
        same_as_plain(Strides(), arch, torch.randn(3, 4, 5, 5), train=train, exact=False)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10_000))
def test_random_graphs_equal_plain_python(seed: int) -> None:
    torch.manual_seed(seed)
    space = RandomNet(seed)
    for choice in (0, 1):
        x = torch.randn(5, 6, requires_grad=True)
        same_as_plain(space, {"choice": choice}, x, train=bool(seed % 2), exact=False)


def test_one_program_for_batches_of_any_length() -> None:
    space = EncoderDecoder()
    program = space.program(ENCODER_DECODER_ARCH, SOURCE, TARGET)
    for n, s, t in ((4, 7, 5), (1, 7, 5), (9, 7, 5), (4, 3, 5), (2, 12, 1), (1, 1, 1)):
        source, target = torch.randint(0, 11, (n, s)), torch.randint(0, 11, (n, t))
        same_as_plain(space, ENCODER_DECODER_ARCH, source, target)
        assert space.program(ENCODER_DECODER_ARCH, source, target) is program


def test_mode_dependent_flags_hold_for_every_arch_and_length() -> None:
    """F.dropout(training=self.training), also where an arch or a length was not recorded in both modes."""
    space = EncoderDecoder().eval()
    for arch in space.structure.enumerate():
        for source in (SOURCE, SOURCE[:, :3]):
            with torch.no_grad():
                one, two = (space(source, TARGET, arch=arch)["logits"] for _ in range(2))
                assert torch.equal(one, two)
                assert torch.equal(one, plainly(space, arch, source, TARGET)["logits"])


@pytest.mark.parametrize("call", ["positional", "keyword", "mixed", "dict", "tuple", "list"])
def test_ways_to_call(call: str) -> None:
    space = EncoderDecoder().eval()
    wanted = plainly(space, ENCODER_DECODER_ARCH, SOURCE, TARGET)["logits"]
    args: tuple[Any, ...]
    args, kwargs = {
        "positional": ((SOURCE, TARGET), {}),
        "keyword": ((), {"target": TARGET, "source": SOURCE}),
        "mixed": ((SOURCE,), {"target": TARGET}),
        "dict": (({"source": SOURCE, "target": TARGET},), {}),
        "tuple": (((SOURCE, TARGET),), {}),
        "list": (([SOURCE, TARGET],), {}),
    }[call]
    space(SOURCE, TARGET, arch=ENCODER_DECODER_ARCH)  # a program recorded for another way to call is not reused
    assert torch.equal(space(*args, arch=ENCODER_DECODER_ARCH, **kwargs)["logits"], wanted)


def test_arguments_that_are_no_tensors_have_programs_of_their_own() -> None:
    class Flag(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.choice = sn.LayerChoice([nn.Identity(), nn.Tanh()])

        def forward(self, x: Tensor, double: bool = False, mask: Tensor | None = None) -> Tensor:
            x = self.choice(x)
            if mask is not None:
                x = x * mask
            return x * 2 if double else x

    space, x = Flag(), torch.randn(2, 3)
    assert torch.equal(space(x, arch={"choice": 0}), x)
    assert torch.equal(space(x, arch={"choice": 0}, double=True), x * 2)
    assert torch.equal(space(x, mask=x, arch={"choice": 0}), x * x)
    assert torch.equal(space(x, arch={"choice": 0}), x)


def test_steps_that_feed_only_inputs_not_chosen_do_not_run() -> None:
    class Pick(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.a = sn.LayerChoice([nn.Linear(3, 3), nn.Tanh()])
            self.b = nn.Linear(3, 3)
            self.c = nn.Linear(3, 3)
            self.pick = sn.InputChoice(3, 2, "concat")

        def forward(self, x: Tensor) -> Tensor:
            return self.pick([self.a(x), self.b(x), self.c(self.b(x))])

    space, x = Pick(), torch.randn(2, 3)
    assert names(space.program({"a": 0, "pick": [0, 1]}, x)) == ["a.0", "b", "pick:cat#0"]
    program = space.program({"a": 0, "pick": [1, 2]}, x)
    assert program.arch == {"pick": [1, 2]} and names(program) == ["b", "b@1", "c", "pick:cat#0"]
    out = space(x, arch={"pick": [1, 2]})
    assert torch.equal(out, torch.cat([space.b(x), space.c(space.b(x))], 1))
    out.sum().backward()
    assert all(p.grad is None for p in space.a.parameters()) and space.c.weight.grad is not None


@pytest.mark.parametrize("reduction", ["sum", "mean", "concat", "none"])
def test_reductions_of_input_choice(reduction: str) -> None:
    class Pick(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.pick = sn.InputChoice(3, 2, reduction)

        def forward(self, x: Tensor) -> Any:
            return self.pick([x, x * 2, x * 3])

    x = torch.randn(2, 3)
    out = Pick()(x, arch={"pick": [2, 0]})
    wanted = {"sum": x + x * 3, "mean": (x + x * 3) / 2, "concat": torch.cat([x, x * 3], 1)}
    if reduction == "none":
        assert isinstance(out, list) and torch.equal(out[0], x) and torch.equal(out[1], x * 3)
    else:
        assert torch.equal(out, wanted[reduction])


def test_repeat_runs_a_prefix() -> None:
    class Chain(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.chain = sn.Repeat(lambda i: sn.LayerChoice([nn.Linear(3, 3), nn.Tanh()]), (0, 3))

        def forward(self, x: Tensor) -> Tensor:
            return self.chain(x) + 1

    space, x = Chain(), torch.randn(2, 3)
    assert names(space.program({"chain": 0}, x)) == [":add#0"]
    arch = {"chain": 2, "chain.0": 0, "chain.1": 1}
    assert names(space.program(arch, x)) == ["chain.0.0", "chain.1.1", ":add#0"]
    same_as_plain(space, arch, x)


def test_gradients_can_be_switched_off_around_a_part() -> None:
    class Part(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(3, 3)
            self.choice = sn.LayerChoice([nn.Linear(3, 3), nn.Identity()])

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                mean = self.line(x).mean()
            return self.choice(self.line(x) - mean)

    same_as_plain(Part(), {"choice": 0}, torch.randn(4, 3))


def test_recording_leaves_the_space_and_torch_alone() -> None:
    space = EncoderDecoder().eval()
    before = {name: t.clone() for name, t in space.state_dict().items()}
    called, state = nn.Module.__call__, torch.get_rng_state()
    space.program(ENCODER_DECODER_ARCH, SOURCE, TARGET)
    assert nn.Module.__call__ is called and torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(t, before[name]) for name, t in space.state_dict().items())
    assert not any(module.training for module in space.modules())


def test_a_space_on_meta_can_be_recorded() -> None:
    with torch.device("meta"):
        skeleton = EncoderDecoder()
    program = Recordings(skeleton).program(ENCODER_DECODER_ARCH, spec_of(((SOURCE, TARGET), {})))
    assert names(program) == names(EncoderDecoder().program(ENCODER_DECODER_ARCH, SOURCE, TARGET))


def test_backward_of_several_outputs_reaches_what_was_selected() -> None:
    space = EncoderDecoder()
    out = space(SOURCE, TARGET, arch=ENCODER_DECODER_ARCH)
    sum(t.sum() for t in tensors(out)).backward()  # type: ignore[union-attr]
    graded = {name for name, p in space.named_parameters() if p.grad is not None}
    assert "encoder.0.0.weight" in graded and "cross.other.in_proj_weight" in graded
    assert not any(name.startswith(("encoder.0.1", "encoder.1.0", "cross.one")) for name in graded)


def test_helpers_are_where_errors_point() -> None:
    program = RandomNet(3).program({"choice": 0}, torch.randn(2, 6))
    file, line = program.steps[0].where.rsplit(":", 1)
    assert file == inspect.getfile(RandomNet) and int(line) > 0


def test_programs_of_a_long_stream_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random archs hardly come twice; one that does is recorded again, and is the same."""
    monkeypatch.setattr("sennit.program.recordings.KEPT", 4)
    space = nn.Sequential(*(sn.LayerChoice([nn.Linear(3, 3), nn.Tanh(), nn.Identity()]) for _ in range(3)))

    class Net(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = space

        def forward(self, x: Tensor) -> Tensor:
            return self.blocks(x)

    recordings = Recordings(Net())
    specs = ((spec_of(torch.randn(2, 3)),), {})
    archs = [{f"blocks.{i}": n // 3**i % 3 for i in range(3)} for n in range(27)]
    first = [names(recordings.program(arch, specs)) for arch in archs]
    assert len(recordings._programs) == 4
    assert [names(recordings.program(arch, specs)) for arch in archs] == first
    assert recordings.program(archs[-1], specs) is recordings.program(archs[-1], specs)


def test_asking_again_is_answered_alike_and_refused_alike() -> None:
    space = Choosing()
    arch: dict[str, Any] = {"choice": 1}
    first = space.program(arch, torch.zeros(2, 3))
    assert space.program(dict(arch), torch.zeros(2, 3)) is first
    arch["choice"] = 0
    assert space.program(arch, torch.zeros(2, 3)) is not first
    with pytest.raises(ArchError):
        space.program({"choice": True}, torch.zeros(2, 3))


class Choosing(sn.ModelSpace):
    def __init__(self) -> None:
        super().__init__()
        self.choice = sn.LayerChoice([nn.Linear(3, 3), nn.Identity()])

    def forward(self, x: Any) -> Any:
        return self.choice(x)
