"""Strategies: those that come with sennit, and those of others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sennit.errors import ArchError, UserError
from sennit.explore.archs import Draws, mutated_arch, random_arch
from sennit.explore.evaluate import Evaluation
from sennit.explore.history import History, Trial
from sennit.explore.metrics import Objective
from sennit.explore.result import LOG
from sennit.explore.search import search
from sennit.explore.strategies import Evolution, make_strategy
from sennit.recipe import Recipe

Make = Callable[..., Recipe]
QUICK = Evaluation(samples=40, recalibrate=2)


def quick(recipe: Recipe, model: Any, folder: Path, strategy: Any, budget: int = 10) -> None:
    search(recipe, model, folder, strategy=strategy, budget=budget, evaluation=QUICK)


class Climb:
    """From the documentation."""

    def __init__(self, structure: Any, seed: int = 0) -> None:
        self.structure, self.seed = structure, seed

    def ask(self, history: History) -> dict[str, Any]:
        draws = history.draws(self.seed)
        if not history.trials:
            return random_arch(self.structure, draws)
        return mutated_arch(self.structure, history.best.arch, draws, probability=0.0)


class Counting:
    """Keeps state of its own: walks through the space."""

    def __init__(self, structure: Any) -> None:
        self.walk = structure.enumerate()

    def ask(self, history: History) -> dict[str, Any]:
        return next(self.walk)


@pytest.mark.parametrize("kind", [Climb, Counting])
def test_a_strategy_of_ones_own(recipe: Recipe, trained: Any, tmp_path: Path, kind: Any) -> None:
    quick(recipe, trained, tmp_path / "a", kind(trained.structure), 6)
    log = (tmp_path / "a" / LOG).read_bytes()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / LOG).write_bytes(log[: len(log) * 2 // 3])
    quick(recipe, trained, tmp_path / "b", kind(trained.structure), 6)
    assert (tmp_path / "b" / LOG).read_bytes() == log


def test_a_strategy_that_cannot_be_resumed_is_found_out(recipe: Recipe, trained: Any, tmp_path: Path) -> None:
    class Clock:
        calls = 0

        def ask(self, history: History) -> dict[str, Any]:
            Clock.calls += 1
            return random_arch(trained.structure, Draws(Clock.calls))

    quick(recipe, trained, tmp_path, Clock(), 2)
    with pytest.raises(UserError, match="must depend on its seed and the history alone"):
        quick(recipe, trained, tmp_path, Clock(), 4)


def test_a_strategy_that_names_a_wrong_arch(recipe: Recipe, trained: Any, tmp_path: Path) -> None:
    class Wrong:
        def ask(self, history: History) -> dict[str, Any]:
            return {"blocks.0": 7}

    with pytest.raises(ArchError, match=r"strategy Wrong, candidate 0: .*'blocks.0'\] = 7"):
        quick(recipe, trained, tmp_path, Wrong())


def test_strategies_by_name(recipe: Recipe, trained: Any) -> None:
    structure = trained.structure
    assert make_strategy("evolution", structure, 5, population=3) == Evolution(structure, 5, population=3)
    climb: Any = make_strategy("test_strategies.py:Climb", structure, 5, str(Path(__file__).parent))
    assert climb.seed == 5
    with pytest.raises(UserError, match="'annealing' is neither built in"):
        make_strategy("annealing", structure, 0)
    with pytest.raises(UserError, match="does not take these arguments"):
        make_strategy("random", structure, 0, population=3)
    with pytest.raises(UserError, match="population >= 1"):
        make_strategy("evolution", structure, 0, population=0)


def test_evolution_is_that_of_the_paper(trained: Any) -> None:
    """Parents come from the youngest P only, and from the best of a sample; children differ in one choice."""
    structure, objective = trained.structure, Objective("accuracy", "max")
    evolution = Evolution(structure, 1, population=4, sample=50, mutation=0.0)
    archs = [random_arch(structure, Draws(i)) for i in range(8)]
    trials = [Trial(i, a, {"accuracy": 1.0 if i == 2 else 0.1 * i}) for i, a in enumerate(archs)]
    history = History(objective, trials)
    for attempt in range(20):
        history.attempt = attempt
        child = evolution.ask(history)
        differing = [label for label in child if child[label] != archs[7][label]]
        assert len(differing) == 1  # number 2 is the best, but has died of age
    drawn = []
    for attempt in range(40):
        history.attempt = attempt
        drawn.append(Evolution(structure, 1, 4, sample=1, mutation=0.0).ask(history))
    parents = {i for child in drawn for i in range(8) if sum(child[n] != archs[i][n] for n in child) == 1}
    assert {4, 5, 6, 7} <= parents


def test_mutation_probability(trained: Any) -> None:
    structure = trained.structure
    arch = structure.default()
    changed = [
        sum(child[n] != arch[n] for n in child)
        for child in (mutated_arch(structure, arch, Draws(i), 0.5) for i in range(200))
    ]
    assert min(changed) == 1
    assert 1.9 < sum(changed) / 200 < 2.3  # 4 choices: 2 on average, 1 instead of 0
    assert all(v != arch[n] for n, v in mutated_arch(structure, arch, Draws(0), 1.0).items())


def test_mutation_opens_nested_choices(make: Make) -> None:
    structure = make("Winding").built.recordings.structure
    arch = {"deep": 1, "deep.0": "mlp", "pick": [0, 1]}
    found = {json.dumps(mutated_arch(structure, arch, Draws(i), 0.9), sort_keys=True) for i in range(300)}
    archs = [json.loads(text) for text in found]
    assert all(structure.canonical(a) == a for a in archs)
    assert {a["deep"] for a in archs} == {1, 2, 3}
    assert any(a.get("fork.1") == 1 for a in archs)
