"""Schedules from files: an order of one's own, or a table of actions.

    mine.py:Deepest     a class, called with (worker, setting), with `add` and `pop` (`Order`); or a `Policy`
    order.csv           a row of actions for each worker, as `torch.distributed.pipelining` writes it, too

A class is taken for an order that goes with any rule, by stage or by layer, split or not. A `Policy` says more.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import cast

from sennit.errors import UserError, why
from sennit.schedule.action import Action, Kind, Table, compact, read_csv
from sennit.schedule.listed import listed
from sennit.schedule.order import Order
from sennit.schedule.own_calls import refuse_methods, refuse_order
from sennit.schedule.policy import Policy
from sennit.schedule.setting import Setting
from sennit.supernet.resolve import resolve

_WHOLE: tuple[Kind, ...] = ("F", "B")
_HALVES: tuple[Kind, ...] = ("F", "I", "W")


def policy_from_object(name: str, builtin: Sequence[str]) -> Policy:
    """What `file.py:Name` names, relative to the folder in which the command was typed.

    Raises:
        UserError: no such file or object, or one that is no order, or cannot be called as one is.
    """
    found = resolve(name, ".", "--schedule", builtin)
    if isinstance(found, Policy):
        refuse_order(name, found.order)
        return found
    if not callable(found):
        raise UserError(
            f"schedule {name}: expected a sennit.schedule.policy.Policy, or a class called with (worker, setting) that "
            f"has add(task) and pop(); got {type(found).__name__}"
        )

    refuse_order(name, found)

    def order(worker: int, setting: Setting) -> Order:
        made = found(worker, setting)
        refuse_methods(name, made)
        return cast("Order", made)

    return Policy(
        order=order,
        sync="csp",
        releases=("stage", "layer"),
        split=None,
        chunked=True,
        in_flight=lambda setting: max(8, setting.bulk),
    )


def policy_from_table(path: Path) -> Policy:
    """The policy whose rounds are the table of a CSV file.

    Raises:
        UserError: a file that cannot be read, or a table that leaves work out.
    """
    try:
        return _read(path, path.stat().st_mtime_ns)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"schedule {path}: {why(error)}") from error


@lru_cache(maxsize=8)
def _read(path: Path, changed: int) -> Policy:
    """Workers ask for their policy at every subnet; a file is read again once it has changed."""
    try:
        table = read_csv(path.read_text())
    except UserError as error:
        raise UserError(f"schedule {path}: {why(error)}") from error
    where, split, number = _checked(path, table)
    stages = max(where) + 1

    def actions(worker: int, setting: Setting, wanted: int) -> list[Action]:
        if setting.workers != len(table) or wanted != number:
            raise UserError(
                f"schedule {path} is for {len(table)} workers and {number} micro-batches in a round; here are "
                f"{setting.workers} workers, and rounds of {setting.round} subnets with {setting.micro_batches} "
                "micro-batches. Change --workers, -M (micro_batches in a recipe), or K of sync = 'bulk:K'"
            )
        return compact(table[worker])

    def place(setting: Setting, stage: int, number: int) -> int:
        return where.get(stage, 0)

    return Policy(order=listed(actions), split=split, stages=lambda setting: stages, place=place)


def _checked(path: Path, table: Table) -> tuple[dict[int, int], bool, int]:
    """Who has which stage, whether backwards are split, and how many micro-batches there are."""
    where: dict[int, int] = {}
    done: dict[Action, int] = {}
    for worker, row in table.items():
        for action in compact(row):
            if where.setdefault(action.stage, worker) != worker:
                raise UserError(
                    f"schedule {path}: stage {action.stage} is on workers {where[action.stage]} and {worker}; give "
                    "each stage to one"
                )
            done[action] = done.get(action, 0) + 1
    kinds = {action.kind for action in done}
    if not done or not (kinds <= {"F", "B"} or kinds <= {"F", "I", "W"}):
        raise UserError(
            f"schedule {path}: expected forwards with whole backwards (F, B) or with split ones (F, I, W); it has "
            f"{', '.join(sorted(kinds)) or 'nothing'}"
        )
    split = "B" not in kinds
    stages, number = max(where) + 1, max(action.micro_batch for action in done) + 1
    every = [
        Action(stage, kind, j)
        for stage in range(stages)
        for kind in (_HALVES if split else _WHOLE)
        for j in range(number)
    ]
    if wrong := [action for action in every if done.get(action) != 1]:
        raise UserError(
            f"schedule {path}: each of {stages} stages must run {'F, I, W' if split else 'F, B'} of micro-batches 0 to "
            f"{number - 1} once; {wrong[0]} is there {done.get(wrong[0], 0)} times"
        )
    if empty := [worker for worker, row in table.items() if not compact(row)]:
        raise UserError(f"schedule {path}: worker {empty[0]} has no actions; leave its line out")
    if stages % len(table):
        raise UserError(f"schedule {path}: {stages} stages on {len(table)} workers; give each worker as many")
    return where, split, number
