"""`sennit search`."""

from __future__ import annotations

import hashlib
import json as jsonlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from tyro.conf import Positional, arg

from sennit.commands.arguments import Json
from sennit.commands.output import Output, figure
from sennit.commands.progress import Meter
from sennit.errors import Interrupted, RunError, UserError
from sennit.words import counted

if TYPE_CHECKING:
    from sennit.explore.history import Trial
    from sennit.explore.result import SearchResult
    from sennit.runtime.load import LoadedRun

HELP = """Looks for the best network of a trained supernet. Each result is on disk before the next candidate
is drawn: the same command goes on where an earlier one was stopped, as if it had not been.

    sennit search runs/first --budget 200
    sennit search runs/first --strategy random --max-parameters 20000"""

FOLDER = "search"
"""Folder of searches inside a run folder."""

TOP = 5
ARCH_WIDTH = 44


@dataclass(frozen=True, kw_only=True)
class Search:
    """Options of `sennit search`."""

    folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """Folder of a trained run."""
    strategy: Annotated[str, arg(metavar="NAME")] = "evolution"
    """evolution, random, or file.py:Name, a class with a method ask(history)."""
    budget: Annotated[int, arg(metavar="N")] = 200
    """Evaluations, those of earlier calls included."""
    seed: Annotated[int | None, arg(metavar="S", help_behavior_hint="(default: the recipe's)")] = None
    """Of the strategy's draws."""
    objective: Annotated[str | None, arg(metavar="M", help_behavior_hint="(default: accuracy, else loss)")] = None
    """A metric, or max:NAME or min:NAME."""
    max_parameters: Annotated[int | None, arg(metavar="X", help_behavior_hint="(default: no limit)")] = None
    """Leave out networks with more parameters."""
    max_flops: Annotated[int | None, arg(metavar="X", help_behavior_hint="(default: no limit)")] = None
    """Leave out networks that need more floating-point operations for one sample."""
    json: Json = False
    """One JSON object on stdout, for errors too."""

    def run(self, out: Output) -> int:
        """Search, and show the leaderboard."""
        from sennit.explore.limits import Constraints
        from sennit.explore.search import search
        from sennit.recipe import use_recipe
        from sennit.runtime.load import load_run
        from sennit.runtime.usercode import blaming

        run = load_run(self.folder)
        use_recipe(run.recipe)
        folder = self._folder(run)
        done = 0

        def on_result(trial: Trial, top: list[Trial]) -> None:
            nonlocal done
            done = trial.number + 1
            best = _numbers(top[0])
            meter.update(done, self.budget, f"best {best}", leaderboard(top[:TOP]))

        with Meter(out, "search", "networks") as meter, blaming(RunError, "while searching"):
            meter.update(0, self.budget)
            try:
                result = search(
                    run.recipe,
                    run.model(),
                    folder,
                    strategy=_strategy(self.strategy),
                    seed=self.seed,
                    budget=self.budget,
                    objective=self.objective,
                    constraints=Constraints(max_parameters=self.max_parameters, max_flops=self.max_flops),
                    on_result=on_result,
                    device=run.run["placement"]["device"],
                )
            except KeyboardInterrupt:
                raise Interrupted(
                    f"stopped after {done} of {self.budget} networks, all kept in {folder}; the same command goes on"
                ) from None
        out.result(_content(result, run), _headline(result, run, added=done > 0), leaderboard(result.top(TOP)))
        return 0

    def _folder(self, run: LoadedRun) -> Path:
        """Where this search's log is: the same settings on the same weights find it again."""
        settings = {
            "strategy": self.strategy,
            "seed": run.recipe.seed if self.seed is None else self.seed,
            "objective": self.objective,
            "max_parameters": self.max_parameters,
            "max_flops": self.max_flops,
            "subnets": run.state.seq_id,
        }
        digest = hashlib.sha256(jsonlib.dumps(settings, sort_keys=True).encode()).hexdigest()
        plain = re.sub(r"\W+", "-", self.strategy.rpartition(":")[2])
        return run.folder.path / FOLDER / f"{plain}-{run.state.seq_id}-{digest[:8]}"


def _strategy(given: str) -> str:
    """A file is looked for here first, then where the recipe is."""
    file, colon, name = given.rpartition(":")
    if colon and file.endswith(".py") and Path(file).is_file():
        return f"{Path(file).absolute()}:{name}"
    return given


def _headline(result: SearchResult, run: LoadedRun, added: bool) -> str:
    stopped = "" if result.stopped == "budget" else ", then there was no other network left"
    if result.stopped == "budget" and not added:
        stopped = ", all by an earlier search: a larger --budget adds to them"
    return (
        f"{run.folder.path}: {counted(len(result.trials), 'network')} evaluated after "
        f"{counted(run.state.seq_id, 'subnet')}{stopped}; log in {result.folder}"
    )


def _content(result: SearchResult, run: LoadedRun) -> dict[str, Any]:
    best = result.best
    return {
        "run": str(run.folder.path),
        "subnets": run.state.seq_id,
        "folder": str(result.folder),
        "evaluations": len(result.trials),
        "stopped": result.stopped,
        "objective": result.objective.name,
        "best": {"number": best.number, "arch": best.arch, "metrics": best.metrics},
    }


def leaderboard(top: list[Trial]) -> Table:
    """The best networks, best first."""
    table = Table(box=None, pad_edge=False)
    names = list(top[0].metrics) if top else []
    for column in ("", "candidate", *names):
        table.add_column(column, justify="right")
    table.add_column("arch", no_wrap=True)
    for place, trial in enumerate(top, 1):
        values = " ".join(str(value).replace(" ", "") for value in trial.arch.values())
        shown = values if len(values) <= ARCH_WIDTH else values[: ARCH_WIDTH - 3] + "..."
        table.add_row(str(place), str(trial.number), *(figure(trial.metrics[name]) for name in names), shown)
    return table


def _numbers(trial: Trial) -> str:
    return " ".join(f"{name} {figure(value)}" for name, value in trial.metrics.items())


def best_of(run: LoadedRun) -> tuple[Trial, dict[str, Any], Path]:
    """The best network of the search on these weights that was last added to, its settings, and its folder.

    Raises:
        UserError: there is none.
    """
    from sennit.explore.result import LOG, read_search
    from sennit.supernet.hashes import state_hash

    root = run.folder.path / FOLDER
    logs = sorted(root.glob(f"*/{LOG}"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    weights = state_hash(run.model()) if logs else ""
    for log in logs:
        result, identity = read_search(log.parent)
        if result.trials and identity["weights_sha256"] == weights:
            return result.best, identity, log.parent
    older = " (those there were made on other weights)" if logs else ""
    raise UserError(f"{run.folder.path} has no search{older}; run `sennit search {run.folder.path}` first")
