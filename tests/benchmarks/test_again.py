"""Predictions of a kept result: the same simulator says what it said then."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.speed.costs import from_plain, prices_of, to_plain
from benchmarks.speed.rows import LAYERS

from tests.benchmarks.test_speed import PROFILE, lap, steps

ROOT = Path(__file__).parents[2]
ROWS = "layers, eager, M = 2;stages, eager, M = 2, 1;CSP 1 split, eager, M = 2, 2"
ARGUMENTS = f"""--device cpu --recipe recipes/digits.toml --micro-batches 1,2 --on 1,2 --predict 2 --chunks 1:split
    --warm 4 --sample 4 --timed 4 --only '{ROWS}'"""


def ran(module: str, *arguments: str) -> str:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout


@pytest.mark.slow
def test_a_kept_result_has_all_that_its_predictions_were_made_from(tmp_path: Path) -> None:
    out = tmp_path / "digits.json"
    ran("benchmarks.speed", *shlex.split(ARGUMENTS), "--out", str(out))
    held = json.loads(out.read_text())
    assert [row["key"] for row in held["rows"] if "ms" in row] == [
        "layers, eager, M = 2, 1", "stages, eager, M = 2, 1", "CSP 1 split, eager, M = 2, 2"
    ]  # fmt: skip
    lines = [line.strip("| ").split(" | ") for line in ran("benchmarks.speed.again", str(out)).splitlines()]
    rows = [line for line in lines if len(line) == 10 and line[0] != "way"]
    assert len(rows) == 3
    for cells in rows:
        then, now = float(cells[6]), float(cells[7])
        assert now == then > 0
    # `layers` has most tasks: without what hosts do between them it takes less
    (layers,) = (cells for cells in rows if cells[0] == LAYERS)
    assert float(layers[9]) < float(layers[5]) * float(layers[7])


def test_prices_come_back_from_a_file() -> None:

    spans = [lap("F", 5, 0, 0, 0.0, 8.0), lap("B", 5, 0, 0, 8.0, 4.0)]
    prices = prices_of(spans, {5: [steps("a", "add")]}, {5: "s"}, PROFILE)
    assert from_plain(PROFILE, json.loads(json.dumps(to_plain(prices)))) == prices
