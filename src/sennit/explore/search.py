"""`search`: the best network of a trained supernet, by evaluating some of them.

Candidate k is a function of the seed, of k and of the results before it. Each result is on the disk before
the next candidate is drawn, so a search that is killed at any moment goes on with the very archs and
metrics that it would have had.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from sennit.errors import ArchError, CheckpointError, UserError
from sennit.explore.evaluate import DEFAULT, Evaluation, Evaluator, as_space
from sennit.explore.history import History, Trial
from sennit.explore.limits import FREE, Budget, Constraints
from sennit.explore.log import Log
from sennit.explore.metrics import Objective
from sennit.explore.result import LOG, SearchResult
from sennit.explore.strategies import Strategy, describe, make_strategy
from sennit.space.model_space import ModelSpace
from sennit.supernet.hashes import state_hash

if TYPE_CHECKING:
    from sennit.recipe import Recipe

SMALL = 512
"""Spaces of at most this many networks are looked through when draws bring nothing new."""

OnResult = Callable[[Trial, list[Trial]], None]
"""Called after each result with the trial and the leaderboard, best first."""


class Search:
    """One search. `run` does it; `search` makes and runs one."""

    def __init__(
        self,
        evaluator: Evaluator,
        model: ModelSpace,
        folder: str | Path,
        strategy: Strategy,
        *,
        budget: Budget,
        objective: Objective,
        constraints: Constraints = FREE,
        refusals: int = 1000,
        top: int = 10,
        on_result: OnResult | None = None,
        resume: bool = True,
    ) -> None:
        if refusals < 1:
            raise UserError(f"refusals must be at least 1, got {refusals}")
        self.evaluator, self.model, self.strategy = evaluator, model, strategy
        self.folder, self.budget, self.constraints = Path(folder), budget, constraints
        self.refusals, self.top, self.on_result, self.resume = refusals, top, on_result, resume
        self.history = History(objective)
        self.seen: set[str] = set()
        self.costs: dict[str, dict[str, int]] = {}

    def run(self) -> SearchResult:
        """Go on until the budget is spent."""
        with Log(self.folder / LOG, self.identity(), self.resume) as log:
            for entry in log.entries:
                self._replay(entry)
            stopped = "budget"
            while self.budget.left(self.history.number):
                candidate = self._candidate()
                if candidate is None:
                    stopped = "exhausted"
                    break
                self._evaluate(log, *candidate)
        return SearchResult(self.history.trials, self.history.objective, stopped, self.folder)

    def identity(self) -> dict[str, Any]:
        """What a resumed search must have in common with its beginning. The budget is not part of it."""
        rule = self.evaluator.rule
        return {
            "recipe": self.evaluator.recipe.identity(),
            "weights_sha256": state_hash(self.model),
            "strategy": describe(self.strategy),
            "objective": dataclasses.asdict(self.history.objective),
            "constraints": dataclasses.asdict(self.constraints),
            "evaluation": dataclasses.asdict(rule),
            "refusals": self.refusals,
            "torch": torch.__version__,
            "device": self.evaluator.device.type,
        }

    # -- one candidate

    def _candidate(self) -> tuple[dict[str, Any], int] | None:
        """The next arch and how often the strategy was asked before; None if there is no further network."""
        reasons: Counter[str] = Counter()
        for attempt in range(self.refusals):
            self.history.attempt = attempt
            arch, reason = self._judge(self.strategy.ask(self.history))
            if reason is None:
                return arch, attempt
            reasons[reason] += 1
        size = self.model.structure.size()
        if size is None or size > SMALL:
            raise UserError(
                f"{self.refusals} archs in a row were refused for candidate {self.history.number}: "
                f"{self._counted(reasons)}{self._least(reasons)}. Loosen that, or lower the budget (in Python, a "
                "larger `refusals` asks for longer)"
            )
        for drawn in self.model.structure.enumerate():
            arch, reason = self._judge(drawn)
            if reason is None:
                return arch, self.refusals
        if not self.history.trials:
            raise UserError(
                f"none of the {size} networks meets {self._counted(reasons)}{self._least(reasons)}. Loosen it"
            )
        return None

    def _least(self, reasons: Mapping[str, int]) -> str:
        """The least that was seen of what is limited."""
        broken = [name for name in ("parameters", "flops") if any(r.startswith(f"max_{name}") for r in reasons)]
        least = ", ".join(f"{min(cost[name] for cost in self.costs.values()):,} {name}" for name in broken)
        return f"; the least that was seen is {least}" if least else ""

    def _judge(self, drawn: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
        """The canonical arch, and why it is refused."""
        try:
            arch = self.evaluator.canonical(self.model, drawn)
        except ArchError as error:
            name = type(self.strategy).__name__
            raise ArchError(f"strategy {name}, candidate {self.history.number}: {error}") from error
        key = key_of(arch)
        if key in self.seen:
            return arch, "evaluated before"
        if key not in self.costs:
            self.costs[key] = self.evaluator.costs(self.evaluator.freeze(self.model, arch))
        return arch, self.constraints.broken(self.costs[key])

    @staticmethod
    def _counted(reasons: Counter[str]) -> str:
        return ", ".join(f"{reason} ({n})" for reason, n in reasons.most_common())

    def _evaluate(self, log: Log, arch: dict[str, Any], attempts: int) -> None:
        measured = self.evaluator.measure(self.evaluator.prepared(self.model, arch))
        trial = Trial(self.history.number, arch, {**measured, **self.costs[key_of(arch)]})
        self.history.objective.value(trial.metrics)  # the metric must be there before anything is written
        log.append({"number": trial.number, "arch": arch, "metrics": trial.metrics, "attempts": attempts})
        self._add(trial)
        if self.on_result is not None:
            self.on_result(trial, self.history.top(self.top))

    def _add(self, trial: Trial) -> None:
        self.history.trials.append(trial)
        self.seen.add(key_of(trial.arch))

    # -- resume

    def _replay(self, entry: dict[str, Any]) -> None:
        """Take a logged result over. The strategy is asked as it was then, and so gets the state it had."""
        number = self.history.number
        try:
            trial = Trial(entry["number"], entry["arch"], entry["metrics"])
            attempts = int(entry["attempts"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"result {number} of {self.folder / LOG} lacks {error}") from error
        if trial.number != number:
            raise CheckpointError(f"{self.folder / LOG}: result {trial.number} stands where {number} should")
        for attempt in range(min(attempts + 1, self.refusals)):
            self.history.attempt = attempt
            drawn = self.strategy.ask(self.history)
        if attempts < self.refusals and any(drawn.get(label) != value for label, value in trial.arch.items()):
            raise UserError(
                f"strategy {type(self.strategy).__name__} proposes {drawn!r:.200} for candidate {number}, "
                f"but the log in {self.folder} has {trial.arch!r:.200}; a strategy must depend on its seed "
                "and the history alone. Choose another folder to start anew"
            )
        self._add(trial)


def search(
    recipe: Recipe,
    model: nn.Module,
    folder: str | Path,
    *,
    strategy: str | Strategy = "evolution",
    strategy_args: dict[str, Any] | None = None,
    seed: int | None = None,
    budget: int | Budget = 200,
    objective: str | None = None,
    constraints: Constraints = FREE,
    evaluation: Evaluation = DEFAULT,
    refusals: int = 1000,
    top: int = 10,
    on_result: OnResult | None = None,
    resume: bool = True,
    device: torch.device | str = "cpu",
) -> SearchResult:
    """Search a trained supernet.

    Args:
        recipe: of the supernet.
        model: `recipe.build_model()` with trained weights. It is only read.
        folder: for the log. A log of this very search in it is resumed.
        strategy: "random", "evolution", `file.py:Name`, or an object with `ask(history) -> arch`.
        strategy_args: of a strategy given by name.
        seed: of a strategy given by name; the recipe's if left out.
        budget: number of evaluations, those before a resume included. The search ends exactly there.
        objective: a metric ("accuracy"), or "max:name", "min:name"; accuracy if the loss has one, else loss.
        constraints: limits on parameters and FLOPs.
        evaluation: samples, and how statistics are re-estimated.
        refusals: how many archs in a row may be refused (known, or breaking a constraint).
        top: length of the leaderboard.
        on_result: called after each result with the trial and the leaderboard.
        resume: False refuses a folder that holds results.

    Raises:
        UserError: a setting that cannot be used, constraints that (nearly) no network meets, a folder in
            use or with another search.
    """
    space = as_space(model)
    evaluator = Evaluator(recipe, evaluation, device)
    if isinstance(strategy, str):
        seed = recipe.seed if seed is None else seed
        strategy = make_strategy(strategy, space.structure, seed, recipe.base, **(strategy_args or {}))
    return Search(
        evaluator, space, folder, strategy,
        budget=Budget(budget) if isinstance(budget, int) else budget,
        objective=Objective.parse(objective or evaluator.default_objective, evaluator.modes),
        constraints=constraints, refusals=refusals, top=top, on_result=on_result, resume=resume,
    ).run()  # fmt: skip


def key_of(arch: dict[str, Any]) -> str:
    """Equal for equal networks."""
    return json.dumps(arch, sort_keys=True)
