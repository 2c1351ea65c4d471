"""Any placement, same bits: the plain loop, workers and partitions, on a space that has everything."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from sennit.errors import UserError
from sennit.profile.quick import block_order
from sennit.recipe import EvaluateRule, Recipe
from sennit.runtime.share import Parts
from sennit.trace.access import read_accesses
from sennit.trace.check import check
from sennit.trace.rules import Rules
from tests.runtime.drawn_back import BACK
from tests.runtime.gates import AlwaysOpen, Copies, FinishedAtThisStage
from tests.runtime.runs import hashes, recipe, run


def violations(folder: Path) -> list[Any]:
    """What the independent checker finds in a run folder."""
    held = json.loads((folder / "run.json").read_text())
    return list(check(read_accesses(folder / "access.jsonl"), Rules.of_run(held)))


def cuts_file(made: Recipe, workers: int, folder: Path) -> str:
    """A file of random cuts, another for every subnet."""
    blocks = block_order(made.built)
    draw = random.Random(5)
    cuts = [sorted(draw.sample(range(1, len(blocks)), workers - 1)) for _ in range(11)]
    path = folder / "cuts.json"
    path.write_text(json.dumps({"format": "sennit.cuts/1", "cuts": cuts}))
    return str(path)


CASES: dict[str, dict[str, Any]] = {
    "strict": {},
    "delayed": {"shared": "delayed:3"},
    "frozen": {"shared": "frozen"},
    "sgd-layer-clip": {"clip": "layer:0.5", "optimizer": {"name": "sgd", "momentum": 0.9, "weight_decay": 1e-3}},
    "adamw-one-micro-batch": {"clip": "none", "micro_batches": 1, "optimizer": {"name": "adamw", "amsgrad": True}},
    "fair": {"sampler": "fair", "clip": "none"},
    "learning": {"sampler": "sink.py:cycle"},
    "delayed-sgd": {"shared": "delayed:2", "optimizer": {"name": "sgd"}, "clip": "layer:1.0", "micro_batches": 4},
    "bf16": {"precision": "bf16"},
    "bulk": {"sync": "bulk:4"},
    "bulk-layer-clip": {"sync": "bulk:8", "clip": "layer:0.5", "optimizer": {"name": "sgd", "momentum": 0.9}},
    "bulk-frozen": {"sync": "bulk:2", "shared": "frozen", "micro_batches": 1, "clip": "none"},
}


@pytest.mark.parametrize("case", CASES)
def test_workers_give_the_bits_of_the_plain_loop(case: str, tmp_path: Path) -> None:
    made = recipe(**CASES[case])
    plain = run(made, tmp_path / "plain", engine="plain")
    assert not violations(tmp_path / "plain")
    for workers in (1, 2, 4):
        result = run(made, tmp_path / str(workers), workers=workers)
        assert hashes(result) == hashes(plain), f"{workers} workers"
        assert not violations(tmp_path / str(workers))


@pytest.mark.parametrize("case", ["strict", "delayed"])
def test_a_cut_of_its_own_for_every_subnet(case: str, tmp_path: Path) -> None:
    made = recipe(**CASES[case])
    plain = run(made, tmp_path / "plain", engine="plain")
    result = run(made, tmp_path / "cuts", workers=3, plan=cuts_file(made, 3, tmp_path))
    assert hashes(result) == hashes(plain)
    assert not violations(tmp_path / "cuts")


@pytest.mark.parametrize("in_flight", [1, 2, 9])
def test_in_flight_is_placement(in_flight: int, tmp_path: Path) -> None:
    made = recipe()
    first = run(made, tmp_path / "a", workers=2)
    second = run(made, tmp_path / "b", workers=2, in_flight=in_flight)
    assert hashes(first) == hashes(second)


@pytest.mark.parametrize("case", ["strict", "delayed", "adamw-one-micro-batch", "bf16", "bulk-layer-clip"])
def test_a_split_backward_is_placement(case: str, tmp_path: Path) -> None:
    made = recipe(**CASES[case])
    plain = run(made, tmp_path / "plain", engine="plain")
    result = run(made, tmp_path / "split", workers=3, plan=cuts_file(made, 3, tmp_path), in_flight=5, split=True)
    assert hashes(result) == hashes(plain)
    assert not violations(tmp_path / "split")


@pytest.mark.parametrize("case", ["strict", "bulk", "learning"])
@pytest.mark.parametrize(
    "placed", [{"chunks": 3}, {"release": "layer"}, {"chunks": 2, "release": "layer", "split": True}]
)
def test_chunks_and_single_layers_are_placement(case: str, placed: dict[str, Any], tmp_path: Path) -> None:
    made = recipe(**CASES[case])
    plain = run(made, tmp_path / "plain", engine="plain")
    result = run(made, tmp_path / "piped", workers=2, **placed)
    assert hashes(result) == hashes(plain)
    assert not violations(tmp_path / "piped")


def test_a_module_that_reads_the_statistics_of_another_is_refused(tmp_path: Path) -> None:
    made = recipe(space="readers.py:Net", data="chain.py:Data", loss_name="cross_entropy", steps=4)
    with pytest.raises(UserError, match=r"(?s)`reads` reads buffer 'norm.running_mean', which step 'norm' writes"):
        run(made, tmp_path / "run", engine="plain")


@pytest.mark.parametrize("changes", [{"shared": "delayed:2"}, {"shared": "delayed:4"}, {"sync": "bulk:4"}, {}], ids=str)
def test_a_layer_that_its_backward_runs_again_finds_what_its_forward_read(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    """It found the version that a later subnet had read in between."""
    made = recipe(
        space="again.py:Recomputed", data="chain.py:Data", loss_name="cross_entropy", clip="none", lr=0.05,
        optimizer={"name": "sgd"}, steps=24, **changes,
    )  # fmt: skip
    plain = run(made, tmp_path / "plain", engine="plain")
    for n, placed in enumerate(({"workers": 2}, {"workers": 3, "release": "layer", "split": True})):
        assert hashes(run(made, tmp_path / str(n), **placed)) == hashes(plain), placed


@pytest.mark.parametrize("engine", ["plain", "pipeline"])
def test_a_backward_that_moves_statistics_is_refused(engine: str, tmp_path: Path) -> None:
    """When it does depends on the placement."""
    made = recipe(
        space="again.py:Recomputed", space_args={"norm": True}, data="chain.py:Data", loss_name="cross_entropy"
    )
    said = r"(?s)step 'stem' .*its buffer 'stem.layer.1.running_mean' in backward, too.*outside of"
    with pytest.raises(UserError, match=said):
        run(made, tmp_path / "run", engine=engine)


def test_a_step_that_splitting_changes_is_refused_by_name(tmp_path: Path) -> None:
    made = recipe(space="odd.py:Odd", data="chain.py:Data", loss_name="cross_entropy", steps=4)
    with pytest.raises(UserError, match=r"(?s)step 'odd' .*another gradient of parameter 'odd.w' .*Leave out --split"):
        run(made, tmp_path / "split", workers=2, split=True)
    run(made, tmp_path / "whole", workers=2)


@pytest.mark.parametrize("loaders", [1, 4])
@pytest.mark.parametrize("batch", [(7, 3), (1, 1)])
def test_loader_processes_are_placement(loaders: int, batch: tuple[int, int], tmp_path: Path) -> None:
    # a batch of one sample needs a space without BatchNorm over the batch alone: the sink's sees (row, place)
    made = recipe(batch_size=batch[0], micro_batches=batch[1], steps=10)
    none = run(made, tmp_path / "a", workers=2)
    some = run(made, tmp_path / "b", workers=2, loaders=loaders, prefetch=3)
    assert hashes(none) == hashes(some)


@pytest.mark.parametrize("case", ["strict", "delayed", "learning"])
def test_resume_on_another_engine_and_number_of_workers(case: str, tmp_path: Path) -> None:
    made = recipe(**CASES[case])
    whole = run(made, tmp_path / "whole", workers=2)
    run(made, tmp_path / "parts", workers=3, steps=7)
    run(made, tmp_path / "parts", engine="plain", steps=13, resume=True)
    result = run(made, tmp_path / "parts", workers=1, resume=True)
    assert hashes(result) == hashes(whole)
    assert not violations(tmp_path / "parts")


@pytest.mark.parametrize("gate", [FinishedAtThisStage, AlwaysOpen])
def test_a_broken_scheduler_is_caught_by_hashes_and_checker(gate: Any, tmp_path: Path) -> None:
    """The published Algorithm 2 with partitions that differ between subnets, and no rule at all."""
    made = recipe(steps=60)
    plain = run(made, tmp_path / "plain", engine="plain")
    cuts = cuts_file(made, 3, tmp_path)
    broken = run(made, tmp_path / "broken", workers=3, plan=cuts, in_flight=8, parts=Parts(gate, Copies))
    assert hashes(broken) != hashes(plain)
    assert violations(tmp_path / "broken")


def test_evaluation_during_training_leaves_the_bits_alone(tmp_path: Path) -> None:
    quiet = run(recipe(), tmp_path / "quiet", workers=2)
    rule = EvaluateRule(every=8, random=2, samples=20, recalibrate=2)
    for engine, workers in (("plain", 1), ("pipeline", 2)):
        out = tmp_path / engine
        result = run(recipe(evaluate=rule), out, engine=engine, workers=workers)
        assert hashes(result) == hashes(quiet)
        assert {"mean", "best"} <= result["evaluation"].keys()
        lines = [json.loads(line) for line in (out / "losses.jsonl").read_text().splitlines()]
        assert [line["seq_id"] for line in lines if "evaluation" in line] == [7, 15]


def test_subnets_with_nothing_to_train(tmp_path: Path) -> None:
    """Most have only shared, frozen layers. The plain loop called `backward()` on a loss without a graph."""
    made = recipe(space="sink.py:Fixed", shared="frozen")
    plain = run(made, tmp_path / "plain", engine="plain")
    assert hashes(run(made, tmp_path / "two", workers=2)) == hashes(plain)


@pytest.mark.parametrize("at_node", [False, True])
def test_hooks_that_a_layer_hangs_on_its_input_find_it_settled_everywhere(at_node: bool, tmp_path: Path) -> None:
    """Also where another step reads that value, and the maker is on the same worker."""
    made = recipe(
        space="hooked.py:Net", space_args={"at_node": at_node}, data="chain.py:Data", loss_name="cross_entropy",
        batch_size=48, micro_batches=2, steps=3, optimizer={"name": "sgd"}, clip="none",
    )  # fmt: skip
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    for n, placed in enumerate(({}, {"release": "layer"}, {"workers": 4, "release": "layer"})):
        assert hashes(run(made, tmp_path / str(n), **placed)) == plain, placed  # type: ignore[arg-type]


@pytest.mark.parametrize("by", ["maker", "reader"])
def test_a_hook_on_what_a_first_layer_makes_changes_its_gradient_once(by: str, tmp_path: Path) -> None:
    """With --split, too, where nothing is wanted of what lies behind that layer but its weights."""
    made = recipe(
        space="hooked.py:FromTheStart", space_args={"by": by}, data="chain.py:Data", loss_name="cross_entropy",
        batch_size=8, micro_batches=2, steps=6, optimizer={"name": "sgd"}, clip="none",
    )  # fmt: skip
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    for n, placed in enumerate(({"workers": 1}, {"workers": 2}, {"workers": 3, "release": "layer"})):
        assert hashes(run(made, tmp_path / f"{n}", split=True, **placed)) == plain, placed  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [kind for kind in BACK if kind != "checkpoint that remembers"])
def test_a_layer_that_draws_in_its_backward_is_refused(kind: str, tmp_path: Path) -> None:
    """Two workers had other bits than one, and nobody said so."""
    made = recipe(space="drawn_back.py:Net", space_args={"kind": kind}, data="chain.py:Data", loss_name="cross_entropy")
    with pytest.raises(UserError, match=r"step 'layer' \(layer\) draws random numbers in its backward"):
        run(made, tmp_path / "run", workers=2)


def test_a_loss_that_draws_in_its_backward_is_refused(tmp_path: Path) -> None:
    made = recipe(space="drawn_back.py:Net", data="chain.py:Data", loss_name="drawn_back.py:loss")
    with pytest.raises(UserError, match=r"the loss 'drawn_back.py:loss' draws random numbers in its backward"):
        run(made, tmp_path / "run", workers=2)


def test_a_layer_that_is_run_again_with_the_draws_of_its_forward(tmp_path: Path) -> None:
    made = recipe(
        space="drawn_back.py:Net", space_args={"kind": "checkpoint that remembers"}, data="chain.py:Data",
        loss_name="cross_entropy", steps=4,
    )  # fmt: skip
    assert hashes(run(made, tmp_path / "two", workers=2)) == hashes(run(made, tmp_path / "one", engine="plain"))
