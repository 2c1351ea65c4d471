"""What is measured: every step of the space, each kind once, bytes that can be counted by hand."""

from __future__ import annotations

import pytest
import torch

from sennit.executor.eager import RunContext
from sennit.profile.measure import Meter
from sennit.profile.profile import Kind, Profile
from sennit.runtime.profiling import measure
from tests.runtime.runs import recipe
from tests.runtime.test_sync_rules import CHAIN


@pytest.fixture(scope="module")
def chain() -> Profile:
    return measure(recipe(**{**CHAIN, "batch_size": 8, "micro_batches": 2}), torch.device("cpu"), each_s=0.0)


def of(profile: Profile, step: str) -> Kind:
    kind = profile.kind(step)
    assert kind is not None, step
    return kind


def test_every_step_is_there_and_each_kind_is_measured_once(chain: Profile) -> None:
    made = recipe(**CHAIN).built
    names = {step.name for program in made.covering for step in program.steps if step.kind != "shape"}
    assert set(chain.steps) == names
    assert chain.steps["blocks.1.0"] == chain.steps["blocks.5.0"]
    assert len({chain.steps[f"blocks.1.{i}"] for i in range(3)}) == 3
    assert chain.micro_batch == 4


def test_bytes(chain: Profile) -> None:
    """Width 6, 4 rows: a linear layer has 42 numbers, momentum as many; it keeps its input for the backward."""
    linear = of(chain, "blocks.1.2")
    assert linear.name == "Linear"
    assert linear.parameter_bytes == linear.state_bytes == 42 * 4
    assert linear.out_bytes == 4 * 6 * 4
    assert linear.held_bytes == 4 * 6 * 4
    assert of(chain, "head").out_bytes == 0, "its output goes into the loss, which is part of it"


def test_the_first_block_need_not_give_a_gradient_on(chain: Profile) -> None:
    """Its input is data, so it is another kind, with no gradient of an input to compute."""
    assert chain.steps["blocks.0.2"] != chain.steps["blocks.1.2"]


def test_times(chain: Profile) -> None:
    for step in ("blocks.0.0", "blocks.3.1", "head"):
        kind = of(chain, step)
        assert min(kind.forward, kind.backward, kind.input, kind.weight, kind.step) > 0, step
    assert chain.links["host to host"] > 0


def test_odd_spaces() -> None:
    """The sink: several inputs and outputs, shapes, tied weights, transposed tensors, integer inputs."""
    made = recipe()
    found = Meter(made.built, torch.device("cpu"), each_s=0.0).all()
    names = {step.name for program in made.built.covering for step in program.steps if step.kind != "shape"}
    assert set(found.steps) == names


def test_nothing_outside_is_changed() -> None:
    made = recipe(**CHAIN)
    before = {name: id(tensor) for name, tensor in made.built.recordings.skeleton.named_parameters()}
    state = torch.get_rng_state()
    Meter(made.built, torch.device("cpu"), each_s=0.0).all()
    assert torch.equal(torch.get_rng_state(), state)
    assert {name: id(tensor) for name, tensor in made.built.recordings.skeleton.named_parameters()} == before


def test_a_slow_lap_or_two_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first warms up, however long it takes; of the three behind it one may have loaded a kernel."""
    meter = Meter(recipe(**CHAIN).built, torch.device("cpu"), each_s=0.0)
    for slow in range(1, 4):
        laps = iter([900.0, *(600.0 if n == slow else 1.0 for n in range(1, 4))])
        monkeypatch.setattr(meter, "lap", lambda forward, backward, laps=laps: {"forward": next(laps)})
        assert meter.times(lambda: ({}, RunContext()), False) == {"forward": 1.0}, slow
        assert next(laps, None) is None
