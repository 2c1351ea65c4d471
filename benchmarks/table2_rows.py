"""Results of `table2.py` as one table, NASPipe's row above those of each space.

What the paper's figures mean: eight GPUs of 11 GB; "B" of a supernet are bytes of float32 parameters, in GB; its
artifact draws weights anew at each call of a layer and copies none; the bubbles are those of four stages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Printed:
    """NASPipe's row: parameters (supernet in GB, cached in millions), and so on."""

    supernet: str
    cached: str
    batch: int
    gpu_memory: str
    utilisation: str
    host: str
    exec_s: float
    bubble: float
    hits: float


PAPER = {
    "nlp.c1": Printed("14.8B", "1327M", 192, "7.8x", "3.9x", "57.8G", 1.13, 0.39, 0.864),
    "nlp.c2": Printed("10.8B", "1350M", 192, "7.8x", "2.8x", "40.0G", 1.09, 0.57, 0.916),
    "nlp.c3": Printed("5.8B", "1327M", 192, "7.8x", "2.0x", "20.3G", 1.12, 0.68, 0.943),
    "cv.c1": Printed("7.4B", "940M", 64, "7.8x", "3.5x", "29.1G", 0.87, 0.43, 0.926),
    "cv.c2": Printed("3.8B", "983M", 64, "7.9x", "2.6x", "14.6G", 0.86, 0.58, 0.948),
    "cv.c3": Printed("1.7B", "1021M", 64, "7.6x", "2.0x", "6.1G", 0.89, 0.68, 0.971),
}
"""The paper prints no row for NLP.c0."""

ORDER = ("nlp.c0", *PAPER)

PIPELINE, PLAIN = "pipeline", "plain"

HEAD: tuple[str, str] = (
    "| space | run | supernet | cached | batch (largest) | device memory | utilisation | host memory | exec s | bubble "
    "| hits | set-up s | hashes |",
    "|---" * 13 + "|",
)


def columns(row: Mapping[str, Any]) -> dict[str, float | None]:
    """The paper's columns of a run; None: it has not told. The plain loop has neither slots nor bubbles."""
    timed, slots, counters = row.get("timed") or {}, row.get("slots") or {}, row.get("counters") or {}
    busy_ms = timed.get("busy_ms_per_subnet", row.get("ms_per_subnet") if row.get("engine") == PLAIN else None)
    return {
        "cached": counters.get("parameters in slots, bytes"),
        "largest": row.get("largest"),
        "device memory": counters.get("device memory, most bytes", row.get("device_bytes")),
        "utilisation": timed.get("utilisation"),
        "host memory": row.get("host_bytes"),
        "exec s": None if busy_ms is None else busy_ms / 1e3,
        "bubble": timed.get("bubble"),
        "hits": slots.get("hit_rate"),
    }


def missing(row: Mapping[str, Any]) -> list[str]:
    """Columns that a run of the pipeline has not told. A row that says why it does not run has none."""
    if "why" in row or row.get("engine") != PIPELINE:
        return []
    return [name for name, value in columns(row).items() if value is None or not math.isfinite(value)]


def on_devices(row: Mapping[str, Any], devices: int) -> bool:
    """Whether it is a row of the table for so many devices: of the pipeline on as many GPUs, or what does not fit."""
    if "why" in row:  # a space that the host has no memory for names no devices
        return row.get("devices", devices) == devices and row.get("engine", PIPELINE) == PIPELINE
    return row["engine"] == PIPELINE and row["devices"] == devices == row.get("gpus")


def _hashes(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name.endswith("_sha256")}


def _bits_of(row: Mapping[str, Any], result: Mapping[str, Any]) -> tuple[Any, ...]:
    """Runs that agree in this must have the same hashes: same training, fingerprints that sennit calls no different."""
    machine = result["fingerprint"]
    kinds = sorted(set(machine.get("gpus", ())))
    return row["space"], row["batch"], row.get("steps"), {**machine, "gpus": kinds}


def joined(results: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of all results in the paper's order, the plain loop last, each with `compared`: `reference`, `equal` or
    `DIFFERENT` from the plain loop (of the same result, if there is one), or `no reference`."""
    runs = [(row, result) for result in results for row in result["rows"]]
    plain = [(row, result) for row, result in runs if row.get("engine") == PLAIN and "why" not in row]
    found: list[dict[str, Any]] = []
    for row, result in runs:
        compared = ""
        if "why" not in row:
            likes = [(p, r) for p, r in plain if _bits_of(p, r) == _bits_of(row, result)]
            likes.sort(key=lambda like: like[1] is not result)
            if row.get("engine") == PLAIN:
                compared = "reference"
            elif not likes:
                compared = "no reference"
            else:
                compared = "equal" if _hashes(row) == _hashes(likes[0][0]) != {} else "DIFFERENT"
        found.append({**row, "compared": compared})
    known = {name: at for at, name in enumerate(ORDER)}
    found.sort(
        key=lambda r: (
            known.get(r["space"], len(known)), r["space"], r.get("engine") == PLAIN, r.get("devices", 0)
        )
    )  # fmt: skip
    return found


def _batch(row: Mapping[str, Any]) -> str:
    if "largest" not in row:
        return f"{row['batch']:,}"
    reached = all(why == "fits" for why in row.get("tried", {}).values())  # the trials ended, not the memory
    return f"{row['batch']:,} ({row['largest']:,}{'+' if reached else ''})"


def cells(row: Mapping[str, Any]) -> list[str]:
    """As the table's columns."""
    supernet = f"{row['parameters'] / 1e6:,.0f} M, {row['bytes'] / 1e9:.1f} GB"
    if "why" in row:
        run = f"{row['engine']}, D = {row['devices']}" if "devices" in row and "engine" in row else "–"
        return [row["space"], run, supernet, f"does not run: {row['why'].splitlines()[0][:200]}", *[""] * 9]
    told = columns(row)

    def shown(name: str, digits: int, gb: bool = False) -> str:
        value = told[name]
        return "–" if value is None else f"{value / 1e9:.{digits}f} GB" if gb else f"{value:.{digits}f}"

    cached = told["cached"]
    return [
        row["space"], f"{row['engine']}, D = {row['devices']}", supernet,
        "–" if cached is None else f"{cached / 4e6:,.0f} M, {cached / 1e9:.2f} GB", _batch(row),
        shown("device memory", 1, gb=True), shown("utilisation", 2), shown("host memory", 1, gb=True),
        shown("exec s", 3), shown("bubble", 3), shown("hits", 3), f"{row['setup_s']:.0f}", row["compared"],
    ]  # fmt: skip


def table(results: Iterable[Mapping[str, Any]]) -> list[str]:
    """Markdown."""
    lines, above = list(HEAD), ""
    for row in joined(results):
        paper = PAPER.get(row["space"])
        if paper is not None and row["space"] != above:
            told = [
                paper.supernet, paper.cached, f"{paper.batch} rows", f"{paper.gpu_memory} 11 GB", paper.utilisation,
                paper.host, paper.exec_s, paper.bubble, paper.hits, "", "",
            ]  # fmt: skip
            lines.append(f"| {row['space']} | paper, 8 GPUs | {' | '.join(map(str, told))} |")
        above = row["space"]
        lines.append(f"| {' | '.join(cells(row))} |")
    return lines
