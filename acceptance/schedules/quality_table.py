"""Table and figures of `benchmarks/quality.py`: held-out score over subnets and over seconds, and what was searched.

python acceptance/schedules/quality_table.py FILE table|rows|same:RULE|scores:RULE
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from statistics import mean
from typing import Any

Row = dict[str, Any]


def score(row: Row) -> float:
    """Of the searched network, on the test split: the first number."""
    return float(next(iter(row["test"].values())))


def at(row: Row, part: float) -> tuple[float, float]:
    """Mean held-out score and seconds once a part of the subnets has been trained."""
    reached = [point for point in row["curve"] if point["subnets"] >= part * row["steps"]]
    return reached[0]["mean"], reached[0]["seconds"]


def spread(numbers: list[float]) -> str:
    return f"{mean(numbers):.4f} ({min(numbers):.4f} .. {max(numbers):.4f})"


def table(rows: list[Row]) -> str:
    """In Markdown: means over seeds, least and largest in brackets."""
    lines = [
        "| rule | workers | seconds | held out after half | held out at the end | searched, test | weights of seed 0 |",
        "|---|---|---|---|---|---|---|",
    ]
    key = lambda row: (row["rule"], row["workers"])  # noqa: E731
    for (rule, workers), group in groupby(sorted(rows, key=key), key=key):
        held = list(group)
        first = next((row["weights_sha256"][:8] for row in held if row["seed"] == 0), "")
        seconds = mean(at(row, 1.0)[1] for row in held)
        columns = [[at(row, part)[0] for row in held] for part in (0.5, 1.0)] + [[score(row) for row in held]]
        lines.append(f"| {rule} | {workers} | {seconds:.1f} | {' | '.join(map(spread, columns))} | {first} |")
    return "\n".join(lines)


def distinct(rows: list[Row], rule: str, of: Callable[[Row], object]) -> str:
    """Seed by seed: how many different ones there are over all numbers of workers."""
    seeds = sorted({row["seed"] for row in rows})
    return " ".join(str(len({of(row) for row in rows if (row["rule"], row["seed"]) == (rule, s)})) for s in seeds)


def main(path: Path, what: str) -> str:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    about, _, rule = what.partition(":")
    if about == "table":
        return table(rows)
    if about == "rows":
        return str(len(rows))
    return distinct(rows, rule, score if about == "scores" else lambda row: row["weights_sha256"])


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), sys.argv[2]))
