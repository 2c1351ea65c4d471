"""What `sennit verify` has found of each run, and what differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sennit.commands.recorded import HASHES


@dataclass
class Row:
    """One run and what was found about it.

    Attributes:
        name: placement, for people.
        schedule: name of the order of its tasks; None for the plain loop, which has none.
        hashes: by key of `result.json`; what is not known is missing.
        seconds: wall time; None for the recorded run.
        violations: of the access log, the first few in words.
        accesses: lines in the log; None if there is no log.
        different: hashes that are not those of the row compared with.
    """

    name: str
    workers: int
    schedule: str | None
    hashes: dict[str, str]
    seconds: float | None
    accesses: int | None = None
    violations: list[str] = field(default_factory=list)
    n_violations: int = 0
    different: list[str] = field(default_factory=list)


def compare(rows: list[Row], *, comparable: bool) -> None:
    """All fresh runs with the plain loop; that with the recorded one, as far as it can be compared."""
    recorded, plain, *others = rows
    for row in others:
        row.different = [key for key in HASHES if row.hashes[key] != plain.hashes[key]]
    if comparable:
        recorded.different = [key for key, value in recorded.hashes.items() if value != plain.hashes[key]]


def as_recorded(rows: list[Row], engine: str) -> dict[str, Any] | None:
    """The rerun with as many workers and the same engine as recorded, compared with the record; None if there is none.

    Where the number of workers is part of the result, only this one can tell whether the run can be repeated.
    """
    recorded, *fresh = rows
    plain = engine == "plain"
    for row in fresh:
        if (row.schedule is None) == plain and row.workers == recorded.workers:
            different = [key for key, value in recorded.hashes.items() if value != row.hashes[key]]
            return {"name": row.name, "workers": row.workers, "equal": not different, "different": different}
    return None


def stopped(
    folder: Path, rows: Sequence[Row], names: Sequence[str], *, steps: int | None, comparable: bool, sync: str = ""
) -> str:
    """What there is to say of a verification that is interrupted: what was done and found, what is left.

    Args:
        folder: of the recorded run.
        rows: the recorded run, once its log has been read, and those that are finished, in order.
        names: of all runs that were to be, in order; the first is the plain loop.
        steps: what `--steps` said.
        comparable: whether the recorded run can be compared with the others.
        sync: the recipe's, if the number of workers is part of the result under it.
    """
    done = [row.name for row in rows[1:]]
    left = [name for name in names if name not in done]
    if done:
        compare(list(rows), comparable=comparable)
    found = [
        f"{row.name} has other {', '.join(key.removesuffix('_sha256') for key in row.different)}"
        for row in rows if row.different
    ]  # fmt: skip
    other = f"; under sync = {sync!r} other numbers of workers are other trainings" if found and sync else ""
    found += [f"{row.name} has {row.n_violations} violations in its access log" for row in rows if row.n_violations]
    said = [f"finished: {', '.join(done)}" if done else "no run was finished, so nothing has been compared"]
    said += [f"NOT equal so far: {', '.join(found)}{other}"] if found else ["all equal so far"] if done else []
    if not left:
        return f"stopped at the end: {'; '.join(said)}"
    workers = ",".join(name.split()[0] for name in left if name != "plain")
    words = ["sennit verify", str(folder), *(["--workers", workers] if workers else [])]
    words += ["--steps", str(steps)] if steps is not None else []
    at = f"in the run as {left[0]}, of which nothing is kept" if rows else "while the log of the recorded run was read"
    again = " (the plain loop is run again, to compare with)" if "plain" in done else ""
    return f"stopped {at}: {'; '.join(said)}. Go on with `{' '.join(words)}`{again}"
