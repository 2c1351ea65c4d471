"""Search: exact resume, exact budget, constraints, the same everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sennit.errors import CheckpointError, UserError
from sennit.explore.evaluate import Evaluation
from sennit.explore.history import Trial
from sennit.explore.limits import Budget, Constraints
from sennit.explore.result import LOG, SearchResult, read_search
from sennit.explore.search import search
from sennit.recipe import Recipe

Make = Callable[..., Recipe]
HERE = Path(__file__).parent
QUICK = Evaluation(samples=40, recalibrate=2)
SMALL = {"population": 4, "sample": 2}


def quick(recipe: Recipe, model: Any, folder: Path, **changes: Any) -> SearchResult:
    settings: dict[str, Any] = {"budget": 10, "strategy_args": SMALL, "evaluation": QUICK}
    return search(recipe, model, folder, **{**settings, **changes})


@pytest.fixture(scope="module")
def whole(recipe: Recipe, trained: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    quick(recipe, trained, folder)
    return folder


def test_resume_after_a_kill_anywhere(whole: Path, recipe: Recipe, trained: Any, tmp_path: Path) -> None:
    """The log cut after every line, and inside every line: the resumed log has the same bytes."""
    log = (whole / LOG).read_bytes()
    ends = [i + 1 for i, byte in enumerate(log) if byte == ord("\n")]
    assert len(ends) == 11
    cuts = [0, *ends, *(end - 1 for end in ends), ends[3] + 1, ends[4] - 20]
    for n, cut in enumerate(cuts):
        folder = tmp_path / str(n)
        folder.mkdir()
        (folder / LOG).write_bytes(log[:cut])
        quick(recipe, trained, folder)
        assert (folder / LOG).read_bytes() == log, f"cut at byte {cut}"


def test_a_whole_last_line_of_rubbish_counts_as_torn(whole: Path, recipe: Recipe, trained: Any, tmp_path: Path) -> None:
    log = (whole / LOG).read_bytes()
    lines = log.splitlines(keepends=True)
    (tmp_path / LOG).write_bytes(b"".join(lines[:6]) + b"\0\0\0\0\n")
    quick(recipe, trained, tmp_path)
    assert (tmp_path / LOG).read_bytes() == log


def test_damage_in_the_middle_is_refused(whole: Path, recipe: Recipe, trained: Any, tmp_path: Path) -> None:
    lines = (whole / LOG).read_bytes().splitlines(keepends=True)
    damaged = b"".join([*lines[:3], b"{\n", *lines[4:]])
    (tmp_path / LOG).write_bytes(damaged)
    with pytest.raises(CheckpointError, match=r"line 4 of .* is damaged"):
        quick(recipe, trained, tmp_path)
    assert (tmp_path / LOG).read_bytes() == damaged
    (tmp_path / LOG).write_bytes(b"".join([*lines[:3], *lines[4:]]))
    with pytest.raises(CheckpointError, match="result 3 stands where 2 should"):
        quick(recipe, trained, tmp_path)


def test_another_search_in_the_folder_is_refused(whole: Path, recipe: Recipe, trained: Any) -> None:
    with pytest.raises(UserError, match=r"holds another search \(strategy: .*\"seed\": 3.* there, .*\"seed\": 4"):
        quick(recipe, trained, whole, seed=4)
    with pytest.raises(UserError, match="weights_sha256"):
        quick(recipe, recipe.build_model(), whole)
    with pytest.raises(UserError, match="already holds 10 results"):
        quick(recipe, trained, whole, resume=False)


def test_a_larger_budget_goes_on(whole: Path, recipe: Recipe, trained: Any, tmp_path: Path) -> None:
    quick(recipe, trained, tmp_path, budget=4)
    quick(recipe, trained, tmp_path, budget=10)
    assert (tmp_path / LOG).read_bytes() == (whole / LOG).read_bytes()


def test_a_folder_in_use_is_refused(recipe: Recipe, trained: Any, tmp_path: Path) -> None:
    def inside(trial: Trial, top: list[Trial]) -> None:
        with pytest.raises(UserError, match="in use by another search"):
            quick(recipe, trained, tmp_path)

    quick(recipe, trained, tmp_path, budget=1, on_result=inside)


def test_exactly_the_budget_and_a_live_leaderboard(recipe: Recipe, trained: Any, tmp_path: Path) -> None:
    seen: list[tuple[int, list[int]]] = []

    def on_result(trial: Trial, top: list[Trial]) -> None:
        lines = (tmp_path / LOG).read_bytes().count(b"\n")
        assert lines == trial.number + 2  # already on the disk
        seen.append((trial.number, [t.number for t in top]))

    result = quick(recipe, trained, tmp_path, budget=7, top=3, on_result=on_result)
    assert [n for n, _ in seen] == list(range(7))
    assert result.stopped == "budget"
    assert seen[-1][1] == [t.number for t in result.top(3)]
    assert result.best == result.top(1)[0]
    accuracies = [t.metrics["accuracy"] for t in result.trials]
    assert result.best.metrics["accuracy"] == max(accuracies)
    equals = [t for t in result.trials if t.metrics["accuracy"] == max(accuracies)]
    assert result.best == min(equals, key=lambda t: t.metrics["loss"])
    assert len({json.dumps(t.arch) for t in result.trials}) == 7
    again, identity = read_search(tmp_path)
    assert again.trials == result.trials
    assert again.best == result.best
    assert identity["recipe"] == recipe.identity()


def test_objective_and_pareto(recipe: Recipe, trained: Any, tmp_path: Path) -> None:
    result = quick(recipe, trained, tmp_path, objective="flops", strategy="random", strategy_args={})
    assert result.best.metrics["flops"] == min(t.metrics["flops"] for t in result.trials)
    front = result.pareto({"accuracy": "max", "flops": "min"})
    for t in result.trials:
        beaten = any(
            o.metrics["accuracy"] >= t.metrics["accuracy"] and o.metrics["flops"] <= t.metrics["flops"]
            and (o.metrics["accuracy"], o.metrics["flops"]) != (t.metrics["accuracy"], t.metrics["flops"])
            for o in result.trials
        )  # fmt: skip
        assert (t in front) is not beaten


def test_constraints(recipe: Recipe, trained: Any, tmp_path: Path) -> None:
    limits = Constraints(max_parameters=3000, max_flops=40_000)
    result = quick(recipe, trained, tmp_path / "a", constraints=limits, budget=8)
    assert len(result.trials) == 8
    assert all(t.metrics["parameters"] <= 3000 and t.metrics["flops"] <= 40_000 for t in result.trials)
    attempts = [json.loads(s)["attempts"] for s in (tmp_path / "a" / LOG).read_text().splitlines()[1:]]
    assert sum(attempts) > 0
    log = (tmp_path / "a" / LOG).read_bytes()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / LOG).write_bytes(log[: len(log) // 2])
    quick(recipe, trained, tmp_path / "b", constraints=limits, budget=8)
    assert (tmp_path / "b" / LOG).read_bytes() == log


def test_constraints_that_nothing_meets(make: Make, tmp_path: Path) -> None:
    small = make("Small")
    with pytest.raises(UserError, match=r"none of the 9 networks meets max_flops = 10 \(20\)"):
        quick(small, small.build_model(), tmp_path / "a", constraints=Constraints(max_flops=10), refusals=20)
    large = make(space_args={"depth": 7})
    with pytest.raises(
        UserError,
        match=r"for candidate 0: max_flops = 10 \(20\); the least that was seen is [\d,]+ flops",
    ):
        quick(large, large.build_model(), tmp_path / "b", constraints=Constraints(max_flops=10), refusals=20)


def test_a_small_space_is_looked_through(make: Make, tmp_path: Path) -> None:
    recipe = make("Small")
    model = recipe.build_model()
    result = quick(recipe, model, tmp_path / "a", budget=50, refusals=30)
    assert result.stopped == "exhausted"
    assert len(result.trials) == 9
    exact = quick(recipe, model, tmp_path / "b", budget=9, refusals=1)
    assert exact.stopped == "budget"
    assert len(exact.trials) == 9


def test_networks_that_differ_in_dead_choices_only_are_one(make: Make, tmp_path: Path) -> None:
    """`fork` feeds an input that is not chosen in a third of the archs."""
    recipe = make("Winding")
    result = quick(recipe, recipe.build_model(), tmp_path, budget=30, strategy="random", strategy_args={})
    assert any("fork" not in t.arch for t in result.trials)
    assert len({json.dumps(t.arch, sort_keys=True) for t in result.trials}) == 30
    log = (tmp_path / LOG).read_bytes()
    (tmp_path / LOG).write_bytes(log[: len(log) // 3])
    quick(recipe, recipe.build_model(), tmp_path, budget=30, strategy="random", strategy_args={})
    assert (tmp_path / LOG).read_bytes() == log


def test_budget() -> None:
    assert Budget(5).left(3) == 2
    assert Budget(5).left(7) == 0
    with pytest.raises(UserError, match="at least 1 evaluation, got 0"):
        Budget(0)


# -- the same in every process

SCRIPT = """
import sys
sys.path.insert(0, {here!r})
from pathlib import Path
from explore_recipes import make_recipe
from test_search import quick
recipe = make_recipe(steps=2)
quick(recipe, recipe.build_model(), Path(sys.argv[1]), budget=6)
"""


@pytest.mark.slow
def test_the_same_in_every_process(make: Make, tmp_path: Path) -> None:
    recipe = make(steps=2)
    quick(recipe, recipe.build_model(), tmp_path / "here", budget=6)
    hash_seed = "77" if os.environ.get("PYTHONHASHSEED") != "77" else "78"
    subprocess.run(
        [sys.executable, "-c", SCRIPT.format(here=str(HERE)), str(tmp_path / "there")],
        env={**os.environ, "PYTHONHASHSEED": hash_seed}, check=True, timeout=120,
    )  # fmt: skip
    assert (tmp_path / "here" / LOG).read_bytes() == (tmp_path / "there" / LOG).read_bytes()
