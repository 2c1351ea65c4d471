"""The tape: names of steps, and numbers of values and sizes."""

from __future__ import annotations

import torch
from program_spaces import ENCODER_DECODER_ARCH, EncoderDecoder, same_as_plain
from torch import Tensor, nn

import sennit as sn

SOURCE, TARGET = torch.randint(0, 11, (4, 7)), torch.randint(0, 11, (4, 5))


def test_steps_of_a_program() -> None:
    program = EncoderDecoder().program(ENCODER_DECODER_ARCH, SOURCE, TARGET)
    names = [step.name for step in program.steps]
    assert names[:2] == ["embed", "shape%0"]
    assert {"encoder.0.0", "encoder.1.1", "embed@1", "cross.other", "join:add#0", ":dropout#0"} <= set(names)
    assert len(set(names)) == len(program.steps)
    assert [step.index for step in program.steps] == list(range(len(program.steps)))
    assert program.n_inputs == 2 and len(program.outputs) == 3
    assert program.tied == {"embed.weight"}  # head and embedding, first by sorted name
    by_name = {step.name: step for step in program.steps}
    assert by_name["out"].params == ("embed.weight",) and by_name[":mul#0"].params == ("scale",)
    assert by_name[":__getitem__#0"].buffers == ("position",)
    assert by_name["cross.other"].block == "cross" and by_name["encoder.0.0"].labels == ("encoder.0",)
    assert by_name["cross.other"].where.startswith(__file__.rsplit("/", 1)[0])
    assert "cross.other(" in program.drawing()


def test_a_step_has_the_same_name_in_every_arch() -> None:
    space = EncoderDecoder()
    seen: dict[str, tuple[str, str]] = {}
    for arch in space.structure.enumerate():
        for step in space.program(arch, SOURCE, TARGET).steps:
            if step.kind != "shape":
                assert seen.setdefault(step.name, (step.call, step.where)) == (step.call, step.where)


def test_identity_and_handed_through_values_are_values_of_their_own() -> None:
    class Through(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x, x * 2

    class Net(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.choice = sn.LayerChoice([nn.Identity(), nn.Tanh()])
            self.through = Through()

        def forward(self, x: Tensor) -> Tensor:
            a, b = self.through(self.choice(x))
            return a + b + x

    same_as_plain(Net(), {"choice": 0}, torch.randn(2, 3, requires_grad=True))


def test_sizes_follow_the_batch() -> None:
    class Sizes(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.choice = sn.LayerChoice([nn.Linear(6, 6), nn.Identity()])

        def forward(self, x: Tensor) -> Tensor:
            n, d = x.shape
            h = self.choice(x).view(x.size(0), 2, d // 2) + torch.arange(x.size(0)).view(-1, 1, 1)
            h = h.reshape(x.shape[0] * 2, -1) + torch.zeros(2 * n, 1)
            return h.view(n, d)[:, : d - 1].reshape(x.numel() - n)

    space = Sizes()
    for n in (3, 1, 8):
        same_as_plain(space, {"choice": 0}, torch.randn(n, 6))
