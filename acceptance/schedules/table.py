"""Figures of `rules.sh`.

python acceptance/schedules/table.py FILE table|rows|apart|micro-batches:RULE|workers:RULE|hashes:RULE
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HEAD = "| rule | M | workers | ms per subnet | bubble | simulated | last loss | weights |"


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Of a file of rows, or of JSON lines."""
    text = path.read_text()
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)["rows"]


def table(rows: list[dict[str, Any]]) -> str:
    """In Markdown."""
    lines = [HEAD, "|---|---|---|---|---|---|---|---|"]
    for r in sorted(rows, key=lambda r: (r["rule"], r["micro_batches"], r["workers"])):
        simulated = f"{r['simulated_bubble']:.3f}" if "simulated_bubble" in r else ""
        hashed = (r["weights_sha256"] or "")[:8]
        loss = f"{r['last_loss']:.6f}" if hashed else ""
        lines.append(
            f"| {r['rule']} | {r['micro_batches']} | {r['workers']} | {r['ms_per_subnet']:.1f} | {r['bubble']:.3f} "
            f"| {simulated} | {loss} | {hashed} |"
        )
    return "\n".join(lines)


def main(path: Path, what: str) -> str:
    rows = rows_of(path)
    about, _, rule = what.partition(":")
    mine = [row for row in rows if row.get("rule", row["sync"]) == rule]
    if about == "table":
        return table(rows)
    if about == "rows":
        return str(len(rows))
    if about == "apart":
        return str(round(max(abs(r["bubble"] - r["simulated_bubble"]) for r in rows if "simulated_bubble" in r), 4))
    if about == "micro-batches":
        return " ".join(str(m) for m in sorted(row["micro_batches"] for row in mine if row["workers"] > 1))
    if path.suffix == ".json":
        mine = [row for row in mine if row["micro_batches"] == 2]
    hashed = [(row["workers"], row.get("weights_sha256", row.get("weights"))) for row in mine]
    if about == "workers":
        return " ".join(str(n) for n in sorted(n for n, found in hashed if found))
    assert about == "hashes", about
    return str(len({found for _, found in hashed}))


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), sys.argv[2]))
