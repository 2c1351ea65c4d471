"""One recording, made elsewhere and put in here, is the program that would be recorded here."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from program_spaces import ENCODER_DECODER_ARCH, EncoderDecoder, RandomNet, Slots, Strides
from torch import nn

from sennit.errors import ArchError
from sennit.program.recordings import Recordings, spec_of
from sennit.program.template import ModeConst, leaves

SOURCE, TARGET = torch.randint(0, 11, (4, 7)), torch.randint(0, 11, (4, 5))
SPACES: dict[str, tuple[nn.Module, Any]] = {
    "encoder, decoder": (EncoderDecoder(), (SOURCE, TARGET)),
    "slots": (Slots(), (torch.randn(5, 4, 6),)),
    "strides": (Strides(), (torch.randn(3, 4, 5, 5),)),
    "random": (RandomNet(4), (torch.randn(5, 6),)),
}


def pair(space: nn.Module, args: tuple[Any, ...]) -> tuple[Recordings, Recordings, Any]:
    """Two that have seen what covers the space, and specs of a call."""
    inputs = spec_of((args, {}))
    here, there = Recordings(space), Recordings(space)
    for recordings in (here, there):
        for arch in recordings.structure.covering():
            recordings.program(arch, inputs)
    return here, there, inputs


@pytest.mark.parametrize("name", SPACES)
def test_equals_the_program_that_is_recorded_here(name: str) -> None:
    space, args = SPACES[name]
    here, there, inputs = pair(space, args)
    third, _, _ = pair(space, args)
    archs = [*here.structure.covering(), *([ENCODER_DECODER_ARCH] if name == "encoder, decoder" else [])]
    for arch in archs:
        found = there.once(arch, inputs)
        assert found is not None
        here._programs.clear()
        here._latest.clear()
        here.put(arch, inputs, *pickle.loads(pickle.dumps(found)))
        put = here.program(arch, inputs)
        third._programs.clear()
        third._latest.clear()
        wanted = third.program(arch, inputs)
        assert put == wanted and [s.entries for s in put.steps] == [s.entries for s in wanted.steps]
        here._latest.clear()
        assert here.program(arch, inputs) is put, "found by its arch, too"
        here.put(arch, inputs, *found)
        assert here.program(arch, inputs) is put, "what is known stays"


def test_flags_and_buffers_that_are_known_here_alone_are_put_in() -> None:
    here, there, inputs = pair(*SPACES["encoder, decoder"])
    there._flags.clear()
    found = there.once(ENCODER_DECODER_ARCH, inputs)
    assert found is not None
    flagged = lambda program: sum(isinstance(x, ModeConst) for s in program.steps for x in leaves((s.args, s.kwargs)))  # noqa: E731
    assert not flagged(found[1])
    here.put(ENCODER_DECODER_ARCH, inputs, *found)
    assert flagged(here.program(ENCODER_DECODER_ARCH, inputs)) == 1
    here, there, inputs = pair(*SPACES["slots"])
    there.recorder.written.clear()
    found = there.once({"choice": 0}, inputs)
    assert found is not None and not any(step.written for step in found[1].steps)
    wanted = here.program({"choice": 0}, inputs)
    here._programs.clear()
    here._latest.clear()
    here.put({"choice": 0}, inputs, *found)
    assert here.program({"choice": 0}, inputs) == wanted and any(step.written for step in wanted.steps)


def test_what_has_not_been_seen_is_not_recorded_once() -> None:
    space, args = SPACES["encoder, decoder"]
    here, _, inputs = pair(space, args)
    longer = spec_of(((SOURCE[:, :6], TARGET), {}))
    assert here.once(ENCODER_DECODER_ARCH, longer) is None
    fresh = Recordings(space)
    assert fresh.once(ENCODER_DECODER_ARCH, inputs) is None
    fresh.program(here.structure.covering()[0], inputs)
    assert fresh.once(here.structure.covering()[1], inputs) is None


def test_an_arch_that_lacks_a_choice_is_refused_as_elsewhere() -> None:
    here, _, inputs = pair(*SPACES["encoder, decoder"])
    lacking = {label: value for label, value in ENCODER_DECODER_ARCH.items() if label != "cross"}
    said: list[str] = []
    for record in (here.program, here.once):
        with pytest.raises(ArchError) as caught:
            record(lacking, inputs)
        said.append(str(caught.value))
    assert "cross" in said[0] and said[0] == said[1]
