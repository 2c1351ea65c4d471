"""A recipe simulated before it runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sennit.errors import UserError
from sennit.profile.profile import Kind, Profile
from sennit.profile.waits import Waits
from sennit.program.cut import cut
from sennit.recipe import Placement
from sennit.runtime.forecast import forecast
from sennit.runtime.levers import ROWS, Seconds, levers, load_of
from sennit.runtime.placing import known_costs
from sennit.runtime.recipe_run import RecipeRun
from sennit.runtime.scheduling import settled
from sennit.runtime.sizes import Sizes
from sennit.simulate.load import Cost, Piece
from tests.runtime.runs import recipe as small_recipe

TWO = Placement(workers=2)


def run_of(placement: Placement = TWO, subnets: int = 8, **changes: object) -> RecipeRun:
    recipe = small_recipe(**{"steps": 12, **changes})
    return RecipeRun(recipe, placement, Seconds(known_costs(recipe.built)), subnets)


def test_whole_bulks_of_the_first_subnets() -> None:
    assert run_of().report()["subnets"] == 8
    assert run_of(subnets=99).report()["subnets"] == 12
    assert run_of(sync="bulk:3").report()["subnets"] == 6
    with pytest.raises(UserError, match="steps once per 4 subnets; simulate at least as many, got 3"):
        run_of(sync="bulk:4", subnets=3).report()


def test_what_learns_is_known_in_a_run_alone() -> None:
    with pytest.raises(UserError, match="may draw by what it learns"):
        run_of(sampler="sink.py:cycle").report()


@pytest.mark.parametrize("placement", [Placement(workers=3), Placement(workers=2, chunks=2, split=True)], ids=str)
def test_levers_are_simulated_with_the_change_alone(placement: Placement) -> None:
    run = run_of(placement)
    shown = {lever["change"]: lever for lever in run.report()["levers"]}
    offered = {lever.change: lever for lever in levers(run.recipe, run.placement, run.seconds)}
    assert set(shown) <= set(offered) and {"--release layer", "--chunks 3"} & set(shown)
    for change, lever in shown.items():
        made = offered[change]
        load = load_of(made.recipe, settled(made.recipe, made.placement), made.seconds, 8)
        assert lever["bubble"] == forecast(load).bubble
        assert lever["recipe"] == (made.recipe is not run.recipe)


def test_bytes_of_runs() -> None:
    """Of every step 100 bytes leave and 10 stay; twice as many rows have twice as many."""
    built = small_recipe().built
    program = built.covering[0]
    kind = Kind(name="any", forward=0.0, backward=0.0, input=0.0, weight=0.0, out_bytes=100, held_bytes=10)
    profile = Profile(
        device="cpu",
        micro_batch=1,
        kinds=[kind],
        steps={step.name: 0 for step in program.steps if step.kind != "shape"},
    )
    for run in cut(program, list(range(len(program.steps)))):
        piece = Piece(0, (), Cost(0.0, 0.0, 0.0, 0.0))
        (step,) = run.steps
        measured = step.kind != "shape"
        readers = [reader for _, readers in run.departures for reader in readers]
        most = max((readers.count(reader) for reader in readers), default=0)  # values that one reader gets
        given = Sizes(profile).given(piece, run)
        assert given.held_bytes == (10.0 if measured else 0.0)
        assert given.out_bytes == pytest.approx(100.0 * most / max(1, len(step.writes)) if measured else 0.0)
        assert Sizes(profile, 2.0).given(piece, run) == replace(
            given, out_bytes=2 * given.out_bytes, held_bytes=2 * given.held_bytes
        )


def test_a_run_that_takes_no_time_is_refused() -> None:
    recipe = small_recipe(steps=4)
    with pytest.raises(UserError, match="no task takes any time"):
        RecipeRun(recipe, TWO, Seconds(Waits({})), 4).report()


def test_chunks_of_a_file_of_cuts_are_told(tmp_path: Path) -> None:
    (tmp_path / "cuts.json").write_text('{"format": "sennit.cuts/1", "cuts": [[1, 2, 3]], "chunks": 2}')
    assert run_of(Placement(workers=2, plan=str(tmp_path / "cuts.json"))).report()["chunks"] == 2
    assert run_of(Placement(workers=2, chunks=3)).report()["chunks"] == 3


def test_another_size_of_micro_batches_is_taken_for_granted() -> None:
    levers_told = run_of(TWO, micro_batches=2, batch_size=8).report()["levers"]
    told = {lever["change"]: lever.get("provided") for lever in levers_told}
    assert told["micro_batches = 4"] == told["micro_batches = 1"] == ROWS
    assert {words for change, words in told.items() if not change.startswith("micro")} == {None}
