"""Predictions of kept results by the simulator as it is now, beside what was measured then.

    python -m benchmarks.speed.again benchmarks/results/speed_nlp.c1_*.json --data en_de_help.tsv.gz

A result has all that its predictions were made from, so the simulator can change, and be held against what GPUs have
shown, without one. The last column is what the order takes where hosts and messages take no time: what a row could
gain by quicker hosts, and how much of the limit its order can reach at best.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.speed.beside import Seen, beside
from benchmarks.speed.costs import from_plain
from benchmarks.speed.given import micro_batches_of, options, recipe_of, ways_of
from benchmarks.speed.once import BUILT, made
from benchmarks.speed.predict import shapes_of
from benchmarks.speed.rows import LAYERS, Row
from benchmarks.speed.window import Window

from sennit.profile.profile import Profile
from sennit.profile.quick import block_order

HEAD = (
    "| way | `shared` | executor | M | devices | ms | predicted then ÷ ms | now ÷ ms | limit ÷ ms | order alone |",
    "|---|---|---|---|---|---|---|---|---|---|",
)


@dataclass(frozen=True)
class Again:
    """A row that was measured.

    Attributes:
        then, now: milliseconds predicted by the file, and by this simulator; None or a text: no prediction.
        alone: the latter where hosts and messages take no time.
        limit: milliseconds.
    """

    row: Row
    ms: float
    then: Any
    now: Any
    alone: Any
    limit: float

    def line(self) -> str:
        """In Markdown."""
        row = self.row
        cells = [row.name, row.shared, row.executor, str(row.micro_batches), str(row.workers), f"{self.ms:.1f}"]
        cells += [f"{said / self.ms:.2f}" if isinstance(said, float) else "" for said in (self.then, self.now)]
        cells += [f"{self.limit / self.ms:.2f}", f"{self.alone:.1f}" if isinstance(self.alone, float) else ""]
        return "| " + " | ".join(cells) + " |"


def seen_of(held: Mapping[str, Any], data: str) -> tuple[Seen, dict[str, Row]]:
    """What a result has seen, and all rows of its command.

    Args:
        data: file of the data set; empty: the one that the command names.
    """
    BUILT.clear()
    given = options(shlex.split(held["command"])[3:])
    given.data = data or given.data
    recipe, window, profile = recipe_of(given), Window(**held["window"]), msgspec.convert(held["profile"], Profile)
    first = made(recipe, Row(LAYERS, micro_batches_of(given)[-1]))
    ways = ways_of(given, len(block_order(first.built)))
    rows = {row.key: row for n in map(int, given.on.split(",")) for row in ways.on(n)}
    prices = {_of(key): from_plain(profile, price) for key, price in held["prices"].items()}
    known = {row["key"]: row for row in held["rows"] if "ms" in row}
    shapes = {m: shapes_of(made(recipe, Row(LAYERS, m)), window.steps) for m in micro_batches_of(given)}
    between = held.get("hop_s", held["message_s"])
    return Seen(recipe, window, given.device, prices, known, profile.links, between, shapes), rows


def _of(key: str) -> tuple[int, str]:
    """M and executor."""
    m, executor = key.removeprefix("M = ").split(", ")
    return int(m), executor


def again(held: Mapping[str, Any], data: str = "") -> Iterator[Again]:
    """Rows of a result that can be predicted; none without prices of layers."""
    if not held["prices"]:
        return
    seen, rows = seen_of(held, data)
    wanted = [row for key, row in rows.items() if key in seen.rows and row.engine == "pipeline"]
    wanted = [row for row in wanted if seen.prices_for(row) is not None]
    now, alone = (beside(one, wanted) for one in (seen, replace(seen, hosts=False, message_s=0.0)))
    for row in wanted:
        known, told = seen.rows[row.key], now[row.key]
        said = told["predicted_ms"], alone[row.key]["predicted_ms"]
        yield Again(row, known["ms"], known.get("predicted_ms"), *said, told["limit_ms"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", help="what `python -m benchmarks.speed --out` has written")
    parser.add_argument("--data", default="", help="file of the data set, where it lies here")
    given = parser.parse_args()
    for path in given.results:
        held = json.loads(path.read_text())
        print(
            "\n".join(
                [f"{path.name}: {held['title']}", "", *HEAD, *(one.line() for one in again(held, given.data)), ""]
            )
        )


if __name__ == "__main__":
    main()
