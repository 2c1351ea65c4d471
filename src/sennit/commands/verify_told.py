"""The findings of `sennit verify`, for machines and for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.table import Table

from sennit.commands.recorded import HASHES, Recorded
from sennit.commands.verify_rows import Row
from sennit.words import counted


@dataclass(frozen=True)
class Findings:
    """Of one `sennit verify`.

    Attributes:
        steps: subnets that were trained anew by each row.
        reasons: why the recorded run cannot be compared; empty if it can.
        again: the rerun as recorded, where the rule depends on the placement.
        equal: whether all that must be are.
    """

    recorded: Recorded
    steps: int
    rows: list[Row]
    reasons: list[str]
    again: dict[str, Any] | None
    equal: bool


def content(found: Findings) -> dict[str, Any]:
    """For machines."""
    return {
        "run": str(found.recorded.path),
        "steps": found.steps,
        "equal": found.equal,
        "comparable": not found.reasons,
        "reasons": found.reasons,
        "per_placement": per_placement(found.recorded),
        "as_recorded": found.again,
        "runs": [
            {
                "name": row.name,
                "workers": row.workers,
                "schedule": row.schedule,
                **row.hashes,
                "seconds": row.seconds,
                "accesses": row.accesses,
                "violations": row.n_violations,
                "first_violations": row.violations,
                "different": row.different,
            }
            for row in found.rows
        ],
    }


def shown(found: Findings) -> list[Any]:
    """For people: a table, and lines below it."""
    recorded, rows, reasons = found.recorded, found.rows, found.reasons
    table = Table(title=f"{recorded.path}, {counted(found.steps, 'subnet')}", title_justify="left")
    for column in ("run", "schedule", "weights", "optimizer", "losses", "access log", "seconds"):
        table.add_column(column, justify="right" if column == "seconds" else "left")
    for row in rows:
        hashes = [_hash(row, key) for key in HASHES]
        log = "none" if row.accesses is None else f"{row.accesses:,} lines, "
        log += "" if row.accesses is None else f"{row.n_violations} violations" if row.n_violations else "ok"
        table.add_row(row.name, row.schedule or "-", *hashes, log, "" if row.seconds is None else f"{row.seconds:.1f}")
    lines = [f"{row.name}: {text}" for row in rows for text in row.violations]
    if reasons:
        lines.append(f"not comparable with the recorded run: {'; '.join(reasons)}. The new runs are compared.")
    if recorded.run["recipe"].get("allow_nondeterministic"):
        lines.append(
            "under allow_nondeterministic = true no two runs can be expected to be equal, not even on as many workers: "
            "a difference is no error"
        )
    if per_placement(recorded):
        lines += _about_placements(recorded, rows, reasons, found.again)
    lines.append("all equal" if found.equal else "NOT equal: what differs from the plain loop is marked with !=")
    return [table, *lines]


def _about_placements(
    recorded: Recorded, rows: list[Row], reasons: list[str], again: dict[str, Any] | None
) -> list[str]:
    """The rerun as recorded, apart from the others: those need not be equal."""
    lines: list[str] = []
    workers = rows[0].workers
    if again is not None:
        keys = ", ".join(key.removesuffix("_sha256") for key in again["different"])
        lines.append(f"{again['name']}, as recorded: {'equal' if again['equal'] else f'NOT equal: {keys}'}")
    elif not reasons:
        lines.append(f"no rerun on {workers} workers, as recorded; add {workers} to --workers")
    lines.append(
        f"under sync = {recorded.run['recipe']['sync']!r} the number of workers and the schedule are part of the "
        "result: other numbers, and the plain loop, are other trainings, as in published systems. csp and bulk:K do "
        "not depend on them"
    )
    return lines


def per_placement(recorded: Recorded) -> bool:
    """Whether the number of workers is part of this run's result."""
    from sennit.supernet.sync_rule import SyncRule

    return SyncRule.parse(recorded.run["recipe"].get("sync", "csp")).per_placement


def _hash(row: Row, key: str) -> str:
    if key not in row.hashes:
        return "-"
    return f"{'!= ' if key in row.different else ''}{row.hashes[key][:12]}"
