"""`sennit verify`."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from sennit.commands.arguments import Json
from sennit.commands.output import Output
from sennit.commands.progress import TrainMeter
from sennit.commands.recorded import HASHES, Recorded
from sennit.commands.verify_rows import Row, as_recorded, compare, stopped
from sennit.commands.verify_told import Findings, content, shown
from sennit.errors import Interrupted, RunError, UserError

if TYPE_CHECKING:
    from sennit.recipe import Placement, Recipe
    from sennit.runtime.request import Request

HELP = """Runs the recipe of a run again as plain loop and on other numbers of workers, and compares hashes of
weights, optimizer and losses. An independent checker reads the access log of each run. Exit code 1 on any
difference. Where workers and schedule are part of the result (sync = bulk-per-worker, asp:*), the schedule is the
recorded one.

    sennit verify runs/first
    sennit verify runs/first --workers 2,8 --steps 50"""

DEFAULT = "1,2,3,4"


@dataclass(frozen=True, kw_only=True)
class Verify:
    """Options of `sennit verify`."""

    folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """Folder of a run."""
    workers: Annotated[str | None, arg(metavar="N,N,...", help_behavior_hint=f"(default: {DEFAULT})")] = None
    """Numbers of workers to run it on, by default also the recorded one if it is part of the result. The plain loop
    is always run as well."""
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
        placement = recorded.placement()
        reasons = recorded.incomparable(in_child(lambda: fingerprint(placement.device)))
        out.say(f"checking the recipe of {self.folder}: each candidate is recorded")
        with blaming(UserError, "while the recipe was checked"):
            counts = self._counts(recipe, placement, out)
        rows: list[Row] = []
        names = [_name(workers) for workers in (0, *counts)]
        try:
            rows.append(_recorded_row(recorded, steps))
            with tempfile.TemporaryDirectory(prefix="sennit-verify-") as temporary:
                for number, workers in enumerate((0, *counts)):
                    request = _request(recipe, workers, placement, steps, Path(temporary) / str(number))
                    try:
                        rows.append(_fresh_row(request, f"{number + 1}/{len(counts) + 1}", out))
                    except UserError as error:
                        if not self._may_be_left_out(recipe, workers, placement):
                            raise
                        out.say(f"left out: {error}")
                        names.remove(_name(workers))
        except (KeyboardInterrupt, Interrupted):
            sync = recipe.sync if recipe.sync_rule.per_placement else ""
            raise Interrupted(
                stopped(self.folder, rows, names, steps=self.steps, comparable=not reasons, sync=sync)
            ) from None
        compare(rows, comparable=not reasons)
        equal = not any(row.different or row.n_violations for row in rows)
        again = None if reasons else as_recorded(rows, recorded.run["engine"])
        found = Findings(recorded, steps, rows, reasons, again, equal)
        out.result(content(found), *shown(found))
        return 0 if equal else 1

    def _may_be_left_out(self, recipe: Recipe, workers: int, placement: Placement) -> bool:
        """A number of workers that nobody asked for, and that the recorded schedule or the size of a bulk may not
        allow."""
        return (
            self.workers is None and recipe.sync_rule.per_placement and bool(workers) and workers != placement.workers
        )

    def _counts(self, recipe: Recipe, placement: Placement, out: Output) -> list[int]:
        """Numbers of workers. The default leaves out those that the space has too few blocks for, and has the recorded
        one if it is part of the result."""
        from sennit.profile.quick import block_order

        most = len(block_order(recipe.built))
        try:
            counts = [int(word) for word in (self.workers or DEFAULT).split(",")]
        except ValueError:
            counts = [0]
        if self.workers is None and recipe.sync_rule.per_placement:
            counts = sorted({*counts, placement.workers})
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

    evaluate = EvaluateRule()
    if recipe.sync_rule.kind == "asp":  # the pipeline is drained there, which changes what is read afterwards
        evaluate = replace(recipe.evaluate, random=0, archs=[])
    return replace(recipe, evaluate=evaluate, checkpoint=CheckpointRule(every=recipe.checkpoint.every, keep=1))


def _request(recipe: Recipe, workers: int, recorded: Placement, steps: int, folder: Path) -> Request:
    """A run as plain loop (no workers) or as pipeline. Where the schedule is part of the result, it is the recorded
    one, with all that belongs to it; cuts are for as many workers as were recorded. Workers may share GPUs."""
    from dataclasses import replace

    from sennit.recipe import Placement
    from sennit.runtime.request import Request

    placement = Placement(workers=max(workers, 1), device=recorded.device)
    if workers and recipe.sync_rule.per_placement:
        plan = recorded.plan if workers == recorded.workers else None
        replicas = 1 if workers % recorded.replicas else recorded.replicas
        placement = replace(recorded, workers=workers, replicas=replicas, plan=plan, loaders=0, transport="auto")
    return Request(
        recipe=recipe,
        placement=placement,
        out=folder,
        steps=steps,
        engine="pipeline" if workers else "plain",
    )


def _name(workers: int) -> str:
    return f"{workers} worker{'s' if workers > 1 else ''}" if workers else "plain"


def _schedule(request: Request) -> str | None:
    """What orders the tasks of a run."""
    from sennit.runtime.scheduling import name_of_policy

    return None if request.engine == "plain" else name_of_policy(request.recipe, request.placement)


def _recorded_row(recorded: Recorded, steps: int) -> Row:
    from sennit.runtime.request import Request

    request = Request(recipe=recorded.recipe(), placement=recorded.placement(), engine=recorded.run["engine"])
    result = recorded.result_at(steps)
    hashes = {key: result[key] for key in HASHES} if result else {"losses_sha256": recorded.losses_sha256(steps)}
    row = Row("recorded", request.placement.workers, _schedule(request), hashes, None)
    if result is not None:  # the log of a run that did not end well stops somewhere
        _check_log(row, recorded.path, recorded.run, steps)
    return row


def _fresh_row(request: Request, counted: str, out: Output) -> Row:
    """Train in a process of its own: nothing that one run leaves behind can reach the next."""
    from sennit.runtime.forked import in_child

    name = _name(request.placement.workers if request.engine == "pipeline" else 0)

    def child() -> dict[str, Any]:
        from sennit.runtime.train import train
        from sennit.runtime.usercode import blaming

        try:
            meter = TrainMeter(out, f"{counted} {name}:", quiet=True)
            with meter, blaming(RunError, "while training"):
                return {"result": train(request, meter.tell)}
        except (UserError, RunError) as error:
            kinds = {UserError: UserError, Interrupted: Interrupted, RunError: RunError}
            return {"raise": next(k for k in kinds if isinstance(error, k)), "text": str(error)}

    answer = in_child(child)
    if "raise" in answer:
        raise answer["raise"](f"{name}: {answer['text']}")
    result = answer["result"]
    assert request.out is not None and request.steps is not None
    again = Recorded.open(request.out)
    hashes = {key: result[key] for key in HASHES}
    row = Row(name, result["workers"], _schedule(request), hashes, result["seconds"])
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
