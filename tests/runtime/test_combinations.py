"""What a layer writes for some combination of choices only: every engine refuses it alike, at the same subnet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import sennit as sn
from sennit.errors import SpaceError, UserError
from sennit.explore.evaluate import Evaluation, evaluate
from sennit.explore.retrain import retrain
from sennit.program.recordings import spec_of
from sennit.recipe import CheckpointRule, EvaluateRule, Recipe
from sennit.runtime.forked import in_child
from sennit.runtime.load import load_run
from sennit.supernet.hashes import hash_tensors
from sennit.supernet.samplers import Uniform
from tests.gpus import apart, needs_gpu
from tests.runtime.combined import WIDTH
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_engines import violations
from tests.runtime.test_sync_rules import CHAIN

COMBINED: dict[str, Any] = {
    **CHAIN, "space": "combined.py:Combined", "steps": 16, "micro_batches": 4, "batch_size": 8,
    "checkpoint": CheckpointRule(every=3),
}  # fmt: skip
PLACED: dict[str, dict[str, Any]] = {
    "one": {"workers": 1},
    "three": {"workers": 3},
    "replicas": {"workers": 2, "replicas": 2},
    "beside": {"workers": 2, "loaders": 1},
    "budget": {"workers": 2, "budget": 1.0},
}
BUFFERS = ("buffer", "data", "view", "out", "foreach", "hidden", "inner", "beside", "statistics")
REPLACED = ("replaced", "rebound")
PARAMETERS = ("parameter", "parameter's data", "parameter replaced")
ONE = {"choices.0": 0, "choices.1": 1}
"""The combination."""


def made_of(kind: str, **changes: Any) -> Recipe:
    return recipe(**{**COMBINED, "space_args": {"kind": kind}, **changes})


def stream_of(kind: str, folder: Path) -> Recipe:
    """A space of 256 networks, and a stream in which subnet 4 is the only one of its kind."""
    plainly = [{f"choices.{i}": (i + y) // 2 % 2 for i in range(8)} for y in range(8)]
    plainly[4] = {f"choices.{i}": i % 2 for i in range(8)}
    (folder / "archs.jsonl").write_text("".join(json.dumps(arch) + "\n" for arch in plainly))
    changes = {"sampler": str(folder / "archs.jsonl"), "space_args": {"kind": kind, "choices": 8}, "steps": 8}
    return recipe(**{**COMBINED, **changes})


def first_with(made: Recipe, arch: dict[str, Any]) -> int:
    """The first subnet of the stream that is `arch`."""
    sampler = Uniform(made.built.recordings.structure, made.seed)
    return next(y for y in range(1000) if sampler.draw(y, []) == arch)


def refused(made: Recipe, out: Path, **placed: Any) -> str:
    """The message, with the run's folder left out, and what it names kept."""
    with pytest.raises(SpaceError) as caught:
        run(made, out, **placed)
    return str(caught.value).replace(str(out), "OUT")


@pytest.mark.parametrize("kind", [*BUFFERS, *REPLACED, *PARAMETERS])
def test_every_engine_refuses_the_same_subnet_in_the_same_words(kind: str, tmp_path: Path) -> None:
    made, y = stream_of(kind, tmp_path), 4
    said = refused(made, tmp_path / "plain", engine="plain")
    assert said.startswith(f"{Path(__file__).parent / 'combined.py'}:"), said
    assert said.endswith(f"stopped at subnet {y}; the state before it is kept in OUT/checkpoints/{y:08d}")
    if kind in BUFFERS:
        name = "gauge.held.seen" if kind in ("inner", "beside") else "gauge.seen"
        assert f"step 'gauge' writes '{name}'" in said and "'choices.5': 1" in said and "right:  self.count +=" in said
    elif kind in REPLACED:
        assert "step 'gauge' replaces its 'seen' by another tensor" in said
    else:
        assert "step 'gauge' (gauge) writes into its own parameter 'gauge.scale'" in said
    few = PLACED if kind == "buffer" else {name: PLACED[name] for name in ("three", "replicas")}
    for name, placed in few.items():
        assert refused(made, tmp_path / name, **placed) == said, name
        assert not violations(tmp_path / name)


@pytest.mark.parametrize("kind", [*REPLACED, *PARAMETERS])
def test_a_small_space_is_looked_at_whole(kind: str, tmp_path: Path) -> None:
    """What no subnet may do is refused before training, if it is seen by then."""
    said = {refused(made_of(kind), tmp_path / str(workers), workers=workers) for workers in (1, 2)}
    assert len(said) == 1 and "stopped at" not in said.pop() and not list(tmp_path.iterdir())


def test_the_state_before_it_is_that_of_a_run_that_ends_there(tmp_path: Path) -> None:
    made = made_of("buffer")
    y = first_with(made, ONE)
    whole = hashes(run(made, tmp_path / "whole", engine="plain", steps=y))
    for name, placed in {"plain": {"engine": "plain"}, **PLACED}.items():
        out = tmp_path / name
        said = refused(made, out, **placed)
        assert hashes(run(made, out, steps=y, resume=True, workers=2)) == whole, name
        assert refused(made, out, resume=True, workers=3) == said, "a run that is resumed meets it again"


def test_a_run_that_is_resumed_meets_it_as_one_that_is_not(tmp_path: Path) -> None:
    made = made_of("buffer")
    y = first_with(made, ONE)
    said = refused(made, tmp_path / "whole", engine="plain")
    for name, placed in {"plain": {"engine": "plain"}, **PLACED}.items():
        run(made, tmp_path / name, engine="plain", steps=y - 1)
        assert refused(made, tmp_path / name, resume=True, **placed) == said, name


@pytest.mark.parametrize(
    "changes", [{"sampler": "combined.py:first_two_then"}, {"sync": "bulk:2"}, {"shared": "frozen"}]
)
def test_other_streams_and_rules(changes: dict[str, Any], tmp_path: Path) -> None:
    made = made_of("buffer", **changes)
    said = refused(made, tmp_path / "plain", engine="plain")
    assert "stopped at subnet " in said and "nothing had been trained" not in said
    for name in ("three", "replicas", "beside"):
        assert refused(made, tmp_path / name, **PLACED[name]) == said, name


def test_the_first_subnet_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "archs.jsonl").write_text('{"choices.0": 0, "choices.1": 1}\n')
    made = made_of("buffer", sampler=str(tmp_path / "archs.jsonl"))
    said = {refused(made, tmp_path / name, **placed) for name, placed in {"p": {"engine": "plain"}, **PLACED}.items()}
    (one,) = said
    assert one.endswith("stopped at subnet 0; nothing had been trained yet")
    assert [path.name for path in tmp_path.iterdir()] == ["archs.jsonl"]


def test_a_stream_without_the_combination_trains(tmp_path: Path) -> None:
    (tmp_path / "archs.jsonl").write_text('{"choices.0": 0, "choices.1": 0}\n{"choices.0": 1, "choices.1": 0}\n' * 4)
    made = made_of("buffer", sampler=str(tmp_path / "archs.jsonl"), steps=8)
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    for name, placed in PLACED.items():
        assert hashes(run(made, tmp_path / name, **placed)) == plain, name


@pytest.mark.parametrize("option", [0, 1])
def test_what_a_covering_arch_shows_is_trained(option: int, tmp_path: Path) -> None:
    """Was refused if the first of these archs did not show it, with words about two steps."""
    made = recipe(**{**COMBINED, "space": "combined.py:OneChoice", "space_args": {"option": option}})
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    for name, placed in PLACED.items():
        assert hashes(run(made, tmp_path / name, **placed)) == plain, name
        assert not violations(tmp_path / name)


def test_numbers_may_decide_inside_a_layer(tmp_path: Path) -> None:
    """Its buffers were constants, since recording could not see that they are written."""
    made = recipe(**{**COMBINED, "space": "combined.py:Asks"})
    assert made.built.groups.of_name["gauge.seen"].kind == "buffers"
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    for name, placed in PLACED.items():
        assert hashes(run(made, tmp_path / name, **placed)) == plain, name
        assert not violations(tmp_path / name)


def test_a_look_at_statistics_for_a_combination_only(tmp_path: Path) -> None:
    """The plain loop trained it, and the pipeline spoke of a plan made for another space."""
    made = recipe(**{**COMBINED, "space": "combined.py:Looks"})
    said = refused(made, tmp_path / "plain", engine="plain")
    assert "`add` reads buffer 'norm.running_mean', which step 'norm' writes" in said
    for name in ("three", "replicas"):
        assert refused(made, tmp_path / name, **PLACED[name]) == said, name


def test_steps_for_a_combination_only_are_trained_everywhere(tmp_path: Path) -> None:
    """The plain loop trained them, and the pipeline stopped: no plan placed them."""
    made = recipe(**{**COMBINED, "space": "combined.py:Adds", "space_args": {}})
    first = first_with(made, ONE)
    blocks = {program.blocks[i] for program in made.built.covering for i in range(len(program.blocks))}
    program = made.built.program(ONE)
    added = [step for step in program.steps if "tanh" in step.name]
    assert added and blocks.issuperset(program.blocks) and first < made.steps
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    ways = {**PLACED, "layers": {"workers": 3, "release": "layer", "split": True}}
    for name, placed in ways.items():
        assert hashes(run(made, tmp_path / name, **placed)) == plain, name
        assert not violations(tmp_path / name)


def test_a_look_before_training_changes_nothing() -> None:
    """A program that was recorded before anything was settled is placed like others."""
    made = recipe(**{**COMBINED, "space": "combined.py:Adds", "space_args": {}}).built
    inputs = spec_of(((torch.zeros(2, WIDTH),), {}))
    looked = made.recordings.program(ONE, inputs, trains=False)
    blocks = {block for program in made.covering for block in program.blocks}
    trained = made.recordings.program(ONE, inputs)
    assert not blocks.issuperset(looked.blocks) and made.groups and blocks.issuperset(trained.blocks)


def test_parameters_for_a_combination_only_are_refused_everywhere(tmp_path: Path) -> None:
    made = recipe(**{**COMBINED, "space": "combined.py:Adds", "space_args": {"uses": True}})
    said = refused(made, tmp_path / "plain", engine="plain")
    assert "step 'more' uses 'more.weight', 'more.bias' for some combinations of choices only" in said
    assert f"stopped at subnet {first_with(made, ONE)}" in said
    for name in ("three", "beside"):
        assert refused(made, tmp_path / name, **PLACED[name]) == said, name


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ("Foreign", "step 'held.1' writes 'gauge.held.seen' in forward, which is not its own"),
        ("Hides", "writes its buffer 'gauge.seen' in forward, and did not when it was recorded"),
    ],
)
def test_writes_that_are_refused_before_training(space: str, words: str, tmp_path: Path) -> None:
    made = recipe(**{**COMBINED, "space": f"combined.py:{space}"})
    for name, placed in {"plain": {"engine": "plain"}, "three": PLACED["three"]}.items():
        with pytest.raises(UserError) as caught:
            run(made, tmp_path / name, **placed)
        assert words in str(caught.value)
        assert not (tmp_path / name).exists()


def test_the_loop_that_a_recipe_means_refuses_it_too() -> None:
    made = made_of("buffer")
    y = first_with(made, ONE)
    model = made.build_model()
    model(torch.zeros(2, 6), arch={"choices.0": 1, "choices.1": 1})
    with pytest.raises(SpaceError, match=r"step 'gauge' writes 'gauge.seen'"):
        model(torch.zeros(2, 6), arch=ONE)
    tasks = made.tasks()
    assert [next(tasks).seq_id for _ in range(y)] == list(range(y))
    with pytest.raises(SpaceError, match=r"step 'gauge' writes 'gauge.seen'"):
        next(tasks)


def test_a_network_is_evaluated_and_trained_alone_all_the_same() -> None:
    """On buffers of its own; and what was looked at is still not trained."""
    made = made_of("buffer", steps=3)
    model = made.build_model()
    assert isinstance(model, sn.ModelSpace)
    before = hash_tensors(dict(model.state_dict()))
    rule = Evaluation(split="train", recalibrate=1)
    one = evaluate(made, model, ONE, rule)
    assert one == evaluate(made, model, ONE, rule)
    assert hash_tensors(dict(model.state_dict())) == before
    assert "gauge.seen" not in made.built.groups.of_name, "a look settles nothing"
    with pytest.raises(SpaceError, match=r"step 'gauge' writes 'gauge.seen'"):
        model(torch.zeros(2, 6), arch=ONE)
    alone = retrain(made, ONE, seed=1)
    assert float(dict(alone.model.named_buffers())["gauge.seen"]) == 3 * made.micro_batches


def test_an_evaluation_while_it_trains_may_draw_it(tmp_path: Path) -> None:
    (tmp_path / "archs.jsonl").write_text('{"choices.0": 0, "choices.1": 0}\n{"choices.0": 1, "choices.1": 0}\n' * 4)
    rule = EvaluateRule(every=4, archs=(ONE,), random=0, samples=20, split="train")
    made = made_of("buffer", sampler=str(tmp_path / "archs.jsonl"), steps=8, evaluate=rule)
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    assert hashes(run(made, tmp_path / "run", workers=2)) == plain


def test_known_programs_are_not_looked_through_again() -> None:
    """What is checked is checked when a program is recorded."""
    made = made_of("buffer")
    made.built.groups  # noqa: B018
    recordings, inputs = made.built.recordings, made.built.example[0]
    arch = {"choices.0": 0, "choices.1": 0}
    program = recordings.program(arch, inputs)
    looked: list[Any] = []
    recordings._refuse_unsettled = looked.append  # type: ignore[method-assign]
    assert all(recordings.program(arch, inputs) is program for _ in range(10)) and not looked


ON_DEVICE: list[dict[str, Any]] = [
    {"workers": 1}, {"workers": 2}, {"workers": 2, "replicas": 2}, {"workers": 2, "budget": 1.0},
    {"workers": 1, "loaders": 1},
]  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
def test_the_same_words_and_state_whatever_the_device(device: str, tmp_path: Path) -> None:
    found = apart(said_on, tmp_path, device) if device == "cuda" else said_on(tmp_path, device)
    assert len(set(found)) == 1 and "stopped at subnet 4; the state before it is kept" in found[0][0]


def said_on(folder: Path, device: str) -> list[tuple[str, str]]:
    """Of the plain loop and of placements on a device, the message, and the hash of the weights that are kept."""
    made = stream_of("buffer", folder)
    placed = [{"engine": "plain"}, *ON_DEVICE]
    if device == "cuda":
        placed.append({"workers": 1, "executor": "graphs"})
    found: list[tuple[str, str]] = []
    for i, placement in enumerate(placed):
        out = folder / str(i)
        said = in_child(lambda out=out, placement=placement: refused(made, out, device=device, **placement))
        found.append((said, hash_tensors(load_run(out).state.weights)))
    return found
