"""Results as a table; several commands are joined by ratios to the plain loop of each.

python -m benchmarks.speed.table speed_a.json speed_b.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

BASE = "plain"
"""The row that others are divided by, with M = 1; with any M the reference for hashes."""

HASHES = ("weights_sha256", "optimizer_sha256", "losses_sha256")

HEAD = (
    "| way | `shared` | executor | M | devices | ms | spread | plain ÷ this | predicted | predicted ÷ ms | limit "
    "| binds | limit ÷ ms | hashes |",
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
)


def base_ms(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """The plain loop with M = 1, what all others are compared with."""
    found = (r for r in rows if r["name"] == BASE and r["micro_batches"] == 1 and r["shared"] == "strict")
    return next((r["ms"] for r in found if "ms" in r), None)


def hashes(row: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> str:
    """Whether a row has the hashes of the plain loop of the same recipe; `own` if its rule depends on the placement."""
    if "ms" not in row:
        return ""
    if row["sync"] != "csp" and not row["sync"].startswith("bulk:"):
        return "own"
    for other in rows:
        same = all(other[k] == row[k] for k in ("micro_batches", "shared", "sync"))
        if other["name"] == BASE and same and "ms" in other:
            if other is row:
                return "reference"
            return "equal" if all(other[h] == row[h] for h in HASHES) else "DIFFERENT"
    return "no reference"


def joined(results: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of all results, each with its ratio to the plain loop of its own command. A reference for hashes may be that
    of another one that has trained the same subnets on the same kind of machine."""
    found: list[dict[str, Any]] = []
    results, alike = [*results], ("title", "window", "fingerprint")
    for result in results:
        rows = result["rows"]
        base = base_ms(rows)
        others = [o for o in results if o is not result and all(o.get(k) == result.get(k) for k in alike)]
        known = [*rows, *(row for other in others for row in other["rows"])]
        for row in rows:
            ms, said = row.get("ms"), row.get("predicted_ms")
            shown = said if ms is None and isinstance(said, float) else ms
            bound = row.get("limit_ms")
            found.append({
                **row, "at": result.get("at", ""), "base_ms": base, "hashes": hashes(row, known),
                "ratio": base / shown if base and shown else None,
                "predicted / ms": said / ms if ms and isinstance(said, float) else None,
                "limit / ms": bound / shown if bound and shown else None,
            })  # fmt: skip
    return found


def latest(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows as `joined` gives them, but for those that a later command has measured again."""
    held = [row for row in rows if "ms" in row]
    last: dict[str, str] = {}
    for row in held:
        last[row["key"]] = max(last.get(row["key"], ""), row["at"])
    return [row for row in held if row["at"] == last[row["key"]]]


def line(row: Mapping[str, Any]) -> str:
    """A row in Markdown. Ratios of a row that was not measured are those of its prediction, in parentheses."""
    measured = "ms" in row
    parts = row.get("parts_ms", ())
    note = f"refused: {row['refused']}" if "refused" in row else f"FAILED: {row['failed']}" if "failed" in row else ""

    def ratio(name: str) -> str:
        value = row.get(name)
        text = "" if value is None else f"{value:.2f}"
        return text if measured or not text else f"({text})"

    cells = [
        row["name"], row["shared"], row["executor"], str(row["micro_batches"]), str(row["workers"]),
        f"{row['ms']:.1f}" if measured else note.splitlines()[0][:120] if note else "–",
        f"{min(parts):.1f} … {max(parts):.1f}" if parts else "", ratio("ratio"),
        _number(row.get("predicted_ms")), ratio("predicted / ms"), _number(row.get("limit_ms")), row.get("binds", ""),
        ratio("limit / ms"), row["hashes"],
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def _number(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, float) else "" if value is None else str(value)[:60]


def table(results: Iterable[Mapping[str, Any]]) -> list[str]:
    """Markdown, a table for each recipe and batch."""
    lines: list[str] = []
    titles: dict[str, list[Mapping[str, Any]]] = {}
    for result in results:
        titles.setdefault(result["title"], []).append(result)
    for title, held in titles.items():
        lines += [title, "", *HEAD, *(line(row) for row in joined(held)), ""]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", help="what `python -m benchmarks.speed --out` has written")
    print("\n".join(table(json.loads(file.read_text()) for file in parser.parse_args().results)))


if __name__ == "__main__":
    main()
