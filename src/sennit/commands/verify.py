"""`sennit verify`."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from tyro.conf import Positional, arg

from sennit.commands.arguments import Json
from sennit.commands.output import Output
from sennit.commands.progress import TrainMeter
from sennit.commands.recorded import HASHES, Recorded
from sennit.errors import Interrupted, RunError, UserError

if TYPE_CHECKING:
    from sennit.recipe import Recipe
    from sennit.runtime.request import Request

HELP = """Runs the recipe of a run again as plain loop and on other numbers of workers, and compares hashes of
weights, optimizer and losses. An independent checker reads the access log of each run. Exit code 1 on any
difference.

    sennit verify runs/first
    sennit verify runs/first --workers 2,8 --steps 50"""

DEFAULT = "1,2,3,4"


@dataclass
class Row:
    """One run and what was found about it.

    Attributes:
        name: placement, for people.
        hashes: by key of `result.json`; what is not known is missing.
        seconds: wall time; None for the recorded run.
        violations: of the access log, the first few in words.
        accesses: lines in the log; None if there is no log.
        different: hashes that are not those of the row compared with.
    """

    name: str
    workers: int
    hashes: dict[str, str]
    seconds: float | None
    accesses: int | None = None
    violations: list[str] = field(default_factory=list)
    n_violations: int = 0
    different: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Verify:
    """Options of `sennit verify`."""

    folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """Folder of a run."""
    workers: Annotated[str | None, arg(metavar="N,N,...", help_behavior_hint=f"(default: {DEFAULT})")] = None
    """Numbers of workers to run it on. The plain loop is always run as well."""
    steps: Annotated[int | None, arg(metavar="S", help_behavior_hint="(default: all)")] = None
    """Repeat the first S subnets only; of the recorded run, losses are then compared alone."""
    json: Json = False
    """One JSON object on stdout, for errors too."""

    def run(self, out: Output) -> int:
        """Run everything, compare, show."""
        from sennit.recipe import use_recipe
        from sennit.runtime.fingerprint import fingerprint
        from sennit.runtime.forked import in_child
        from sennit.runtime.usercode import blaming

        recorded = Recorded.open(self.folder)
        steps = recorded.steps(self.steps)
        recipe = _quick(recorded.recipe())
        use_recipe(recipe)
        device = str(recorded.run["placement"]["device"])
        reasons = recorded.incomparable(in_child(lambda: fingerprint(device)))
        out.say(f"checking the recipe of {self.folder}: each candidate is recorded")
        with blaming(UserError, "while the recipe was checked"):
            counts = self._counts(recipe, out)
        rows = [_recorded_row(recorded, steps)]
        with tempfile.TemporaryDirectory(prefix="sennit-verify-") as temporary:
            for number, workers in enumerate((0, *counts)):
                request = _request(recipe, workers, device, steps, Path(temporary) / str(number))
                rows.append(_fresh_row(request, f"{number + 1}/{len(counts) + 1}", out))
        _compare(rows, comparable=not reasons)
        equal = not any(row.different or row.n_violations for row in rows)
        out.result(_content(recorded, steps, rows, reasons, equal), *_shown(recorded, steps, rows, reasons, equal))
        return 0 if equal else 1

    def _counts(self, recipe: Recipe, out: Output) -> list[int]:
        """Numbers of workers. The default leaves out those that the space has too few blocks for."""
        from sennit.profile.quick import block_order

        most = len(block_order(recipe.built))
        try:
            counts = [int(word) for word in (self.workers or DEFAULT).split(",")]
        except ValueError:
            counts = [0]
        if min(counts) < 1:
            raise UserError(f"--workers must be numbers from 1 on, separated by commas, got {self.workers!r}")
        if self.workers is None and max(counts) > most:
            counts = [n for n in counts if n <= most]
            out.say(f"the space has {most} blocks, so at most {most} workers")
        if max(counts) > most:
            raise UserError(f"--workers {self.workers}: the space has only {most} blocks to place; use at most {most}")
        return counts


def _quick(recipe: Recipe) -> Recipe:
    """The recipe without what changes no bit and takes time."""
    from dataclasses import replace

    from sennit.recipe import CheckpointRule, EvaluateRule

    return replace(recipe, evaluate=EvaluateRule(), checkpoint=CheckpointRule(every=recipe.checkpoint.every, keep=1))


def _request(recipe: Recipe, workers: int, device: str, steps: int, folder: Path) -> Request:
    from sennit.recipe import Placement
    from sennit.runtime.request import Request

    return Request(
        recipe=recipe,
        placement=Placement(workers=max(workers, 1), device=device),
        out=folder,
        steps=steps,
        engine="pipeline" if workers else "plain",
    )


def _name(request: Request) -> str:
    n = request.placement.workers
    return "plain" if request.engine == "plain" else f"{n} worker{'s' if n > 1 else ''}"


def _recorded_row(recorded: Recorded, steps: int) -> Row:
    result = recorded.result_at(steps)
    hashes = {key: result[key] for key in HASHES} if result else {"losses_sha256": recorded.losses_sha256(steps)}
    row = Row("recorded", recorded.run["placement"]["workers"], hashes, None)
    if result is not None:  # the log of a run that did not end well stops somewhere
        _check_log(row, recorded.path, recorded.run, steps)
    return row


def _fresh_row(request: Request, counted: str, out: Output) -> Row:
    """Train in a process of its own: nothing that one run leaves behind can reach the next."""
    from sennit.runtime.forked import in_child

    def child() -> dict[str, Any]:
        from sennit.runtime.train import train
        from sennit.runtime.usercode import blaming

        try:
            meter = TrainMeter(out, f"{counted} {_name(request)}:", quiet=True)
            with meter, blaming(RunError, "while training"):
                return {"result": train(request, meter.tell)}
        except (UserError, RunError) as error:
            kinds = {UserError: UserError, Interrupted: Interrupted, RunError: RunError}
            return {"raise": next(k for k in kinds if isinstance(error, k)), "text": str(error)}

    answer = in_child(child)
    if answer.get("raise") is Interrupted:
        raise Interrupted(f"stopped in the run as {_name(request)}; nothing is kept of it")
    if "raise" in answer:
        raise answer["raise"](f"{_name(request)}: {answer['text']}")
    result = answer["result"]
    assert request.out is not None and request.steps is not None
    again = Recorded.open(request.out)
    row = Row(_name(request), result["workers"], {key: result[key] for key in HASHES}, result["seconds"])
    _check_log(row, again.path, again.run, request.steps)
    return row


def _check_log(row: Row, folder: Path, run: dict[str, Any], steps: int) -> None:
    """Let the checker read the access log, line by line."""
    from sennit.trace.access import read_accesses
    from sennit.trace.check import Rules, check

    path = folder / "access.jsonl"
    if not path.is_file():
        return
    row.accesses = 0

    def counted() -> Any:
        for access in read_accesses(path):
            row.accesses = (row.accesses or 0) + 1
            yield access

    rules = Rules.of_run(run, steps)
    found = check(counted(), rules)
    row.n_violations, row.violations = len(found), [str(violation) for violation in found[:5]]


def _compare(rows: list[Row], *, comparable: bool) -> None:
    """All fresh runs with the plain loop; that with the recorded one, as far as it can be compared."""
    recorded, plain, *others = rows
    for row in others:
        row.different = [key for key in HASHES if row.hashes[key] != plain.hashes[key]]
    if comparable:
        recorded.different = [key for key, value in recorded.hashes.items() if value != plain.hashes[key]]


def _content(recorded: Recorded, steps: int, rows: list[Row], reasons: list[str], equal: bool) -> dict[str, Any]:
    return {
        "run": str(recorded.path),
        "steps": steps,
        "equal": equal,
        "comparable": not reasons,
        "reasons": reasons,
        "per_placement": per_placement(recorded),
        "runs": [
            {
                "name": row.name,
                "workers": row.workers,
                **row.hashes,
                "seconds": row.seconds,
                "accesses": row.accesses,
                "violations": row.n_violations,
                "first_violations": row.violations,
                "different": row.different,
            }
            for row in rows
        ],
    }


def _shown(recorded: Recorded, steps: int, rows: list[Row], reasons: list[str], equal: bool) -> list[Any]:
    table = Table(title=f"{recorded.path}, {steps} subnets", title_justify="left")
    for column in ("run", "weights", "optimizer", "losses", "access log", "seconds"):
        table.add_column(column, justify="right" if column == "seconds" else "left")
    for row in rows:
        hashes = [_hash(row, key) for key in HASHES]
        log = "none" if row.accesses is None else f"{row.accesses:,} lines, "
        log += "" if row.accesses is None else f"{row.n_violations} violations" if row.n_violations else "ok"
        table.add_row(row.name, *hashes, log, "" if row.seconds is None else f"{row.seconds:.1f}")
    lines = [f"{row.name}: {text}" for row in rows for text in row.violations]
    if reasons:
        lines.append(f"not comparable with the recorded run: {'; '.join(reasons)}. The new runs are compared.")
    if per_placement(recorded):
        lines.append(
            f"under sync = {recorded.run['recipe']['sync']!r} the number of workers and the schedule are part of the "
            "result: other numbers give other bits, as published systems do. csp and bulk:K do not"
        )
    lines.append("all equal" if equal else "NOT equal: what differs from the plain loop is marked with !=")
    return [table, *lines]


def per_placement(recorded: Recorded) -> bool:
    """Whether the number of workers is part of this run's result."""
    from sennit.supernet.sync_rule import SyncRule

    return SyncRule.parse(recorded.run["recipe"].get("sync", "csp")).per_placement


def _hash(row: Row, key: str) -> str:
    if key not in row.hashes:
        return "-"
    return f"{'!= ' if key in row.different else ''}{row.hashes[key][:12]}"
